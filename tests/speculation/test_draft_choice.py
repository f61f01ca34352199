"""K is the one that gives the most tokens a second, whatever changes; trials cost next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

import pytest

from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.speculation.draft_choice import AdaptiveChoice, Decision, DraftChoice, FixedChoice
from draftproof.speculation.step_costs import StepCost, StepCosts

COSTS = (0.010, 0.014, 0.018, 0.022)
"""A public report's machine: one row 10 ms, two 14, four 22."""
RATES = (0.7, 0.45 / 0.7, 0.3 / 0.45)
"""Its acceptance: .7, .45 and .3 of all windows keep their first, second, third draft."""
BATCHES = (1, 2, 4, 8)


def measured(costs: Sequence[float] = COSTS, growth: float = 0.1) -> StepCosts:
    return StepCosts(
        StepCost(batch, arm, seconds * (1 + growth * (batch - 1)))
        for batch in BATCHES
        for arm, seconds in enumerate(costs)
    )


@dataclass
class Machine:
    """Steps with made-up costs and acceptance. A draft is accepted when a sum of its rates passes the next
    whole number, so that rates hold exactly and nothing is random."""

    costs: Sequence[float] = COSTS
    rates: Sequence[float] = RATES
    load: Callable[[int], float] = lambda step: 1.0
    seconds: float = 0.0
    tokens: int = 0
    steps: int = 0
    chosen: list[int] = field(default_factory=list)
    _credit: list[float] = field(default_factory=lambda: [0.5] * 8)

    def run(self, choice: DraftChoice, steps: int, batch: int = 1, limit: int = 3) -> None:
        for _ in range(steps):
            decision = choice.choose((limit,) * batch)
            taken = self.costs[decision.draft_tokens] * (1 + 0.1 * (batch - 1)) * self.load(self.steps)
            counts = AcceptanceCounts()
            for _ in range(batch):
                counts += self._window(decision.draft_tokens)
            choice.observe(decision, taken, counts)
            self.seconds += taken
            self.tokens += counts.emitted
            self.steps += 1
            self.chosen.append(decision.draft_tokens)

    def _window(self, drafts: int) -> AcceptanceCounts:
        accepted = 0
        for position in range(drafts):
            self._credit[position] += self.rates[position]
            if self._credit[position] < 1.0:
                break
            self._credit[position] -= 1.0
            accepted += 1
        return AcceptanceCounts.of_pass(drafts, accepted, accepted + 1)

    def best(self) -> float:
        """Tokens a second of one sequence with the best K."""
        expected = accumulate(accumulate(self.rates, mul), initial=1.0)
        return max(tokens / seconds for tokens, seconds in zip(expected, self.costs, strict=False))


def mostly(chosen: Sequence[int]) -> int:
    return max(set(chosen), key=chosen.count)


def test_the_choice_of_the_public_report_is_the_most_tokens_per_time() -> None:
    machine, choice = Machine(), AdaptiveChoice(measured())
    machine.run(choice, 2000)
    rates = [1.0 / 0.010, 1.7 / 0.014, 2.15 / 0.018, 2.45 / 0.022]
    assert mostly(machine.chosen[500:]) == rates.index(max(rates)) == 1
    arms = [arm for arm in choice.arms() if arm.batch == 1]
    assert [arm.draft_tokens for arm in arms if arm.is_chosen] == [1]
    assert [arm.step_seconds for arm in arms] == pytest.approx(COSTS, rel=0.01)
    assert [arm.tokens_per_second for arm in arms] == pytest.approx(rates, rel=0.06)


SITUATIONS = {
    "the public report": Machine(),
    "rows are free": Machine(costs=(0.010, 0.0101, 0.0102, 0.0103)),
    "rows are dear": Machine(costs=(0.010, 0.019, 0.028, 0.037)),
    "accepted and slower": Machine(costs=(0.010, 0.030, 0.050, 0.070), rates=(0.97, 0.97, 0.97)),
    "never accepted": Machine(rates=(0.0, 0.0, 0.0)),
    "always accepted": Machine(rates=(1.0, 1.0, 1.0)),
    "only the first": Machine(rates=(0.95, 0.05, 0.0)),
    "nearly equal": Machine(costs=(0.010, 0.0169, 0.0213, 0.0243)),
}


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("batch", [1, 3])
def test_trials_and_learning_cost_less_than_two_percent(name: str, batch: int) -> None:
    given = SITUATIONS[name]
    machine = Machine(given.costs, given.rates)
    machine.run(AdaptiveChoice(measured(given.costs)), 5000, batch)
    scale = batch / (1 + 0.1 * (batch - 1))
    assert machine.tokens / machine.seconds > 0.98 * scale * machine.best()


@pytest.mark.parametrize(("gain", "chosen"), [(1.015, 0), (1.1, 1)])
def test_drafts_need_an_advantage_over_plain_decoding(gain: float, chosen: int) -> None:
    """Estimates are good to a few percent: what is hardly better may be worse."""
    costs = (0.010, 0.016 / gain, 0.026, 0.036)
    machine, choice = Machine(costs, (0.6, 0.0, 0.0)), AdaptiveChoice(measured(costs))
    machine.run(choice, 4000)
    assert machine.chosen[-2000:].count(chosen) > 1900


def test_plain_decoding_is_left_again_when_drafts_are_accepted_again() -> None:
    machine, choice = Machine(rates=(0.0, 0.0, 0.0)), AdaptiveChoice(measured())
    machine.run(choice, 4000)
    assert machine.chosen[-500:].count(0) > 480
    machine.rates = (1.0, 1.0, 1.0)
    machine.run(choice, 12_000)
    assert mostly(machine.chosen[-500:]) == 3


def test_the_largest_k_is_left_when_acceptance_collapses_within_a_hundred_steps() -> None:
    machine, choice = Machine(rates=(1.0, 1.0, 1.0)), AdaptiveChoice(measured())
    machine.run(choice, 4000)
    machine.rates = (0.0, 0.0, 0.0)
    machine.run(choice, 300)
    assert mostly(machine.chosen[4200:]) == 0


def test_wrong_costs_of_the_start_are_found_out() -> None:
    """Measured while something else ran: drafts looked five times as dear as they are."""
    machine = Machine(rates=(0.9, 0.9, 0.9))
    choice = AdaptiveChoice(measured((0.010, 0.070, 0.090, 0.110)))
    machine.run(choice, 20_000)
    assert mostly(machine.chosen[-1000:]) == 3
    arms = {arm.draft_tokens: arm.step_seconds for arm in choice.arms() if arm.batch == 1}
    assert arms[3] / arms[0] == pytest.approx(2.2, rel=0.2)


def test_a_machine_that_gets_slower_for_all_changes_nothing() -> None:
    machine = Machine(load=lambda step: 1.0 if step < 1000 else 3.0)
    choice = AdaptiveChoice(measured())
    machine.run(choice, 3000)
    trials = sum(arm != 1 for arm in machine.chosen[200:])
    assert trials < 0.05 * 2800
    assert next(arm for arm in choice.arms() if arm.is_chosen).step_seconds == pytest.approx(0.042, rel=0.05)


def test_steps_that_waited_for_something_else_change_little() -> None:
    machine = Machine(load=lambda step: 50.0 if step % 40 == 0 else 1.0)
    machine.run(AdaptiveChoice(measured()), 4000)
    assert mostly(machine.chosen[500:]) == 1


def test_an_arm_that_looked_better_than_it_is_is_left_soon() -> None:
    """Something else ran except while an arm was tried."""
    trials: list[int] = []

    class Watched(AdaptiveChoice):
        def choose(self, limits: Sequence[int]) -> Decision:
            decision = super().choose(limits)
            trials.append(decision.is_trial)
            return decision

    machine = Machine(costs=(0.010, 0.018, 0.026, 0.034))
    machine.load = lambda step: 1.0 if trials[-1] else 1.9
    machine.run(Watched(measured(machine.costs)), 6000)
    others = [arm for arm, tried in zip(machine.chosen[500:], trials[500:], strict=True) if arm and not tried]
    assert len(others) < 0.05 * 5500


def test_each_size_class_has_its_own_choice() -> None:
    """Rows are free at batch 1 and dear at batch 8, as on a GPU."""
    costs = StepCosts(
        StepCost(batch, arm, 0.010 * (1 + arm * (0.05 if batch == 1 else 1.0)))
        for batch in (1, 8)
        for arm in range(4)
    )
    choice, machine = AdaptiveChoice(costs), Machine()
    for _ in range(600):
        decision = choice.choose((3,))
        choice.observe(decision, None, machine._window(decision.draft_tokens))
    assert choice.choose((3,)).draft_tokens == 3
    assert choice.choose((3,) * 8).draft_tokens == 0
    assert {arm.batch: arm.draft_tokens for arm in choice.arms() if arm.is_chosen} == {1: 3, 8: 0}


@pytest.mark.parametrize(
    ("limits", "most"), [((0,), 0), ((0, 0, 0), 0), ((1,), 1), ((2, 0), 2), ((9, 1), 3), ((3,) * 20, 3)]
)
def test_nobody_gets_more_drafts_than_the_limits_allow(limits: tuple[int, ...], most: int) -> None:
    for choice in (FixedChoice(3), AdaptiveChoice(measured((0.010, 0.010, 0.010, 0.010)))):
        for _ in range(1000):
            decision = choice.choose(limits)
            assert decision.batch == len(limits)
            assert decision.draft_tokens <= most
            choice.observe(decision, 0.01, AcceptanceCounts())
        assert choice.choose(limits).draft_tokens <= most


def test_sequences_without_drafts_count() -> None:
    """One of eight drafts: the wider step costs all eight."""
    choice, machine = AdaptiveChoice(measured()), Machine()
    machine.run(choice, 500)
    assert choice.choose((3,)).draft_tokens > 0
    assert choice.choose((3, *(0,) * 7)).draft_tokens == 0


def test_plain_steps_are_not_tried_where_they_end_speculation() -> None:
    machine = Machine(costs=(0.010, 0.0101, 0.0102, 0.0103))
    machine.run(AdaptiveChoice(measured(machine.costs), fewest_tried=1), 5000)
    assert set(machine.chosen) == {1, 2, 3}


def test_every_other_k_is_tried_in_turn() -> None:
    machine = Machine()
    machine.run(AdaptiveChoice(measured()), 6000)
    assert set(machine.chosen[1000:]) == {0, 1, 2, 3}


def test_a_trial_that_the_limits_forbid_waits() -> None:
    choice = AdaptiveChoice(measured(), fewest_tried=1)
    Machine(rates=(0.0, 0.0, 0.0)).run(choice, 1000)
    for _ in range(3000):
        decision = choice.choose((0,))
        assert decision.draft_tokens == 0
        choice.observe(decision, 0.010, AcceptanceCounts())
    assert choice.choose((3,)).is_trial


def test_fixed_is_always_the_same_and_compares_nothing() -> None:
    choice = FixedChoice(2)
    assert choice.choose((3, 1)).draft_tokens == 2
    assert choice.arms() == ()
