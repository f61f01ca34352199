"""How many drafts the next window gets: as many as give the most tokens a second. Needs no torch.

K changes the speed of a text, never the text. Every K from 0 (plain decoding) to the largest is an arm. An
arm is worth the tokens that its windows can be expected to add, divided by the time of its step:

    worth(K) = sum over sequences of expected_tokens(min(K, limit of the sequence)) / seconds(batch, K)

What is not in use cannot be measured, so that a choice once made could stand forever. Other arms are
therefore tried now and then, first the one that was not tried for longest, and what trials may lose is a
share of the time: an arm that is thought to be much worse is tried rarely, one that is nearly as good often.
All of it follows from the steps that were taken: there is no chance and no clock in here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.speculation.acceptance_average import AcceptanceAverage
from draftproof.speculation.step_costs import StepCosts

TRIAL_SHARE = 0.01
"""Share of the time that trials may lose, as far as the estimates know."""

TRIAL_STEPS = 4
"""Steps of one trial: the first may be a transition, which tells nothing about time."""

LOST_STEPS = 1
"""Steps' time that a trial is taken to lose whatever its arm is worth: a drafter catches up with the tokens
that it was not shown."""

ADVANTAGE = 1.03
"""Drafts must be thought to be worth so many times what plain decoding is: estimates are not better than
that, and what is nearly as good may be a little worse."""

STEPS_BETWEEN_TRIALS = 128
"""At least so many steps lie between the begins of two trials of a size class: an arm that is wrongly thought
to be as good as the one in use costs little too."""

STEPS_BEFORE_TRIAL = 16
"""Before the first trial of a size class; they double up to `STEPS_BETWEEN_TRIALS`."""

NEARLY_AS_GOOD = 0.7
"""The first trial of an arm that is thought to be worth so much of the best one costs nothing: what was
measured at the start may be a little off."""

FOLLOWING = 1 / 16
"""Weight of a new measurement of the arm in use, for what all arms share."""

TRYING = 1 / 4
"""Weight of a new measurement of an arm on trial or new in use, for what is its own: there are few."""

NEW_STEPS = 12
"""So long an arm is new in use: what its steps take more or less than expected is its own. Later it is taken
for what all arms share, since nothing else is measured beside it."""

LARGEST_SURPRISE = 2.0
"""A measurement counts as at most so many times what was expected: a step that waited for something else than
itself says little."""


@dataclass(frozen=True)
class DraftArm:
    """One choice of K for batches of one size.

    Attributes:
        batch: sequences.
        draft_tokens: K; 0 is plain decoding.
        step_seconds: of a step, measured.
        tokens_per_second: of one sequence that is to be expected with the acceptance seen so far.
        is_chosen: whether it is the one in use.
    """

    batch: int
    draft_tokens: int
    step_seconds: float
    tokens_per_second: float
    is_chosen: bool


@dataclass(frozen=True)
class Decision:
    """What was decided for one step.

    Attributes:
        batch: sequences of the step.
        draft_tokens: K.
        is_trial: whether another K was thought to be worth more.
    """

    batch: int
    draft_tokens: int
    is_trial: bool = False


class DraftChoice(Protocol):
    """Decides K from step to step."""

    def choose(self, limits: Sequence[int]) -> Decision:
        """For the next step.

        Args:
            limits: most drafts of each sequence of the batch, at least one sequence; 0 for one without
                drafts.
        """
        ...

    def observe(self, decision: Decision, seconds: float | None, acceptance: AcceptanceCounts) -> None:
        """Take note of a step that is over.

        Args:
            decision: that it followed.
            seconds: it took; None when that is not what such a step takes, because something else happened in
                between or its windows were of other sizes.
            acceptance: of its drafts.
        """
        ...

    def arms(self) -> tuple[DraftArm, ...]:
        """What is compared; empty where nothing is."""
        ...


class FixedChoice:
    """Always K, as far as the sequences' limits allow."""

    def __init__(self, draft_tokens: int) -> None:
        self._draft_tokens = draft_tokens

    def choose(self, limits: Sequence[int]) -> Decision:
        return Decision(len(limits), min(self._draft_tokens, max(limits)))

    def observe(self, decision: Decision, seconds: float | None, acceptance: AcceptanceCounts) -> None:
        """Nothing depends on it."""

    def arms(self) -> tuple[DraftArm, ...]:
        return ()


@dataclass
class _SizeClass:
    """What is known about batches of one size class.

    Attributes:
        corrections: by K, time of a step over what was measured at the start, without what all K share.
        tried_at: by K, the trial in which it was measured last; 0 for none.
        drift: time of a step over what was measured at the start as far as all K share it: the machine has
            other work, contexts grew.
        trials: begun so far.
        steps_since: the last one began.
        savings: seconds that the next trial may lose; a trial takes all of them, so that trials never come
            in rows.
        trial: K on trial.
        trial_steps: left of it.
        in_use: K that was chosen last.
        new_steps: left of its being new.
    """

    corrections: list[float]
    tried_at: list[int]
    drift: float = 1.0
    trials: int = 0
    steps_since: int = 0
    savings: float = 0.0
    trial: int = 0
    trial_steps: int = 0
    in_use: int = -1
    new_steps: int = 0

    @property
    def may_try(self) -> bool:
        """Whether it is time for a trial."""
        apart = min(STEPS_BEFORE_TRIAL << min(self.trials, 8), STEPS_BETWEEN_TRIALS)
        return self.steps_since >= apart and not self.trial_steps

    def begin_trial(self, draft_tokens: int) -> None:
        self.trials += 1
        self.tried_at[draft_tokens] = self.trials
        self.trial, self.trial_steps = draft_tokens, TRIAL_STEPS
        self.steps_since, self.savings = 0, 0.0

    def is_new(self, decision: Decision) -> bool:
        """Whether the arm of a step that is over was on trial or new in use; the step is counted."""
        if decision.is_trial:
            self.trial_steps -= self.trial_steps > 0 and decision.draft_tokens == self.trial
            return True
        if decision.draft_tokens != self.in_use:
            self.in_use, self.new_steps = decision.draft_tokens, NEW_STEPS
        self.new_steps -= self.new_steps > 0
        return self.new_steps > 0


class AdaptiveChoice:
    """The K that is worth the most, and trials of the others.

    Batches are judged by size classes: 1, 2, up to 4, up to 8, ...

    Args:
        costs: of steps, measured at the start.
        fewest_tried: least K that is tried: 1 where a plain step leaves the drafter behind, so that trying it
            would end the speculation of its sequences.
    """

    def __init__(self, costs: StepCosts, fewest_tried: int = 0) -> None:
        self._costs = costs
        self._fewest_tried = fewest_tried
        self._average = AcceptanceAverage(costs.most_drafts)
        self._classes: dict[int, _SizeClass] = {}

    def choose(self, limits: Sequence[int]) -> Decision:
        batch, most = len(limits), min(max(limits), self._costs.most_drafts)
        size = self._class_of(batch)
        if size.trial_steps and size.trial <= most:
            return Decision(batch, size.trial, is_trial=True)
        worths = self._worths(limits, most)
        best = _best(worths)
        others = [arm for arm in range(self._fewest_tried, most + 1) if arm != best]
        if others and size.may_try:
            arm = min(others, key=lambda arm: (size.tried_at[arm], -arm))
            lost = LOST_STEPS + TRIAL_STEPS * max(1.0 - worths[arm] / worths[best], 0.0)
            price = lost * self._seconds(batch, arm)
            free = not size.tried_at[arm] and worths[arm] >= NEARLY_AS_GOOD * worths[best]
            if free or price <= size.savings:
                size.begin_trial(arm)
                return Decision(batch, arm, is_trial=True)
        return Decision(batch, best)

    def observe(self, decision: Decision, seconds: float | None, acceptance: AcceptanceCounts) -> None:
        self._average.observe(acceptance)
        size, arm = self._class_of(decision.batch), decision.draft_tokens
        expected = self._seconds(decision.batch, arm)
        size.steps_since += 1
        size.savings += TRIAL_SHARE * expected
        surprise = min(max((seconds or expected) / expected, 1.0 / LARGEST_SURPRISE), LARGEST_SURPRISE)
        if size.is_new(decision):
            size.corrections[arm] *= surprise**TRYING
        else:
            size.drift *= surprise**FOLLOWING

    def arms(self) -> tuple[DraftArm, ...]:
        found = []
        for batch in self._costs.batches:
            worths = self._worths((self._costs.most_drafts,) * batch, self._costs.most_drafts)
            best = _best(worths)
            for arm, worth in enumerate(worths):
                found.append(DraftArm(batch, arm, self._seconds(batch, arm), worth / batch, arm == best))
        return tuple(found)

    def _worths(self, limits: Sequence[int], most: int) -> list[float]:
        """By K up to `most`: tokens a second of the whole batch; the smaller K comes first and wins ties."""
        expected, batch = self._average.expected_tokens, len(limits)
        return [
            sum(expected[min(arm, limit)] for limit in limits) / self._seconds(batch, arm)
            for arm in range(most + 1)
        ]

    def _seconds(self, batch: int, arm: int) -> float:
        size = self._class_of(batch)
        return self._costs.seconds(batch, arm) * size.drift * size.corrections[arm]

    def _class_of(self, batch: int) -> _SizeClass:
        number = (batch - 1).bit_length()
        if number not in self._classes:
            arms = self._costs.most_drafts + 1
            self._classes[number] = _SizeClass([1.0] * arms, [0] * arms)
        return self._classes[number]


def _best(worths: Sequence[float]) -> int:
    """The K that is worth the most; none unless drafts have an advantage."""
    best = worths.index(max(worths))
    return best if worths[best] > ADVANTAGE * worths[0] else 0
