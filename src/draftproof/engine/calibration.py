"""Measures what steps cost, by running some: requests that nobody made, on an engine that nobody uses yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from draftproof.engine.loop import EngineLoop
from draftproof.engine.request import Request
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.speculation.draft_choice import Decision, DraftArm
from draftproof.speculation.step_costs import StepCost, StepCosts

PROMPT_TOKENS = 8
"""Short: prompts take time too."""

ROUNDS = 2
MEASURED_STEPS = 2
"""All K of a batch size but 0 are measured in turns, so many steps each and so often; the least time of each
counts. What else the machine does for a while then hits all of them."""

MOST_STEPS = 6 * MEASURED_STEPS
"""Steps after which a batch size and K is given up: its sequences end too early to show it."""

CALIBRATION_SECONDS = 4.0
"""When measured steps have taken so long no further batch size is begun: what it costs is estimated from
smaller ones. Steps that compile kernels or record graphs do not count: the first requests would wait for
those."""


class DictatedChoice:
    """The K that it is told, and the time of each step that had it."""

    def __init__(self) -> None:
        self.draft_tokens = 0
        self.costs: list[StepCost] = []

    def choose(self, limits: Sequence[int]) -> Decision:
        return Decision(len(limits), min(self.draft_tokens, max(limits)))

    def observe(self, decision: Decision, seconds: float | None, acceptance: AcceptanceCounts) -> None:
        if seconds is not None:
            self.costs.append(StepCost(decision.batch, decision.draft_tokens, seconds))

    def arms(self) -> tuple[DraftArm, ...]:
        return ()


@dataclass(frozen=True)
class Calibration:
    """What is measured.

    Attributes:
        batches: sizes, rising.
        drafts: K, rising from 0.
        seconds: when measured steps have taken so long no further size is begun.
    """

    batches: tuple[int, ...]
    drafts: tuple[int, ...]
    seconds: float = CALIBRATION_SECONDS


def calibrated_batches(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... and `most`."""
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    return tuple(sizes)


def calibrated_drafts(most: int) -> tuple[int, ...]:
    """0, 1, 3, 7, ... and `most`: windows of 1, 2, 4, 8, ... rows; between them costs lie on a line."""
    drafts = [0]
    while drafts[-1] < most:
        drafts.append(min(2 * drafts[-1] + 1, most))
    return tuple(drafts)


def measure_step_costs(
    engine: EngineLoop, choice: DictatedChoice, calibration: Calibration
) -> StepCosts | None:
    """Costs of steps; None when sequences are too short to show them.

    Args:
        engine: without requests, and of no further use: its counters have seen all this.
        choice: that the engine was made with.
        calibration: what to measure.
    """
    batches = _ScratchBatches(engine)
    whole: list[int] = []
    for batch in calibration.batches:
        if whole and _seconds_measured(choice.costs) > calibration.seconds:
            break
        # Plain steps come last: where they leave the head behind, only sequences that come later draft again.
        arms = [arm for arm in calibration.drafts if arm] * ROUNDS + [0] * ROUNDS
        if not all(_measure(batches, choice, batch, arm) for arm in arms):
            break
        whole.append(batch)
    batches.clear()
    # Batches of other sizes came by while one was filled.
    return StepCosts(cost for cost in choice.costs if cost.batch in whole) if whole else None


def _seconds_measured(costs: Sequence[StepCost]) -> float:
    """What all these steps take, without whatever made some of them longer."""
    least: dict[tuple[int, int], float] = {}
    for cost in costs:
        key = cost.batch, cost.draft_tokens
        least[key] = min(cost.seconds, least.get(key, cost.seconds))
    return sum(least[cost.batch, cost.draft_tokens] for cost in costs)


def _measure(batches: _ScratchBatches, choice: DictatedChoice, batch: int, draft_tokens: int) -> bool:
    """Steps of one size and K; whether there were enough whose time counts."""
    choice.draft_tokens = draft_tokens
    begin, wanted = len(choice.costs), (batch, draft_tokens)
    for _ in range(MOST_STEPS):
        batches.fill(batch)
        batches.step()
        found = [cost for cost in choice.costs[begin:] if (cost.batch, cost.draft_tokens) == wanted]
        if len(found) >= MEASURED_STEPS:
            return True
    return False


class _ScratchBatches:
    """Sequences that only exist to be stepped."""

    def __init__(self, engine: EngineLoop) -> None:
        self._engine = engine
        self._alive: set[str] = set()
        self._names = count()

    def fill(self, batch: int) -> None:
        """See to it that there are so many sequences, as far as they do not end with their prompts."""
        for _ in range(batch - len(self._alive)):
            name = f"calibration-{next(self._names)}"
            self._engine.add(self._request(name, len(self._alive)))
            self._alive.add(name)
            # A prompt of one chunk: a step or two, and with others around steps of theirs.
            self.step()

    def step(self) -> None:
        for output in self._engine.step():
            if output.finish_reason is not None:
                self._alive.discard(output.request_id)

    def clear(self) -> None:
        for name in self._alive:
            self._engine.abort(name)
        while self._engine.has_work:
            self._engine.step()

    def _request(self, name: str, number: int) -> Request:
        """Different tokens for each: a mixture of experts reads what they choose."""
        spec = self._engine.model.spec
        special = {*spec.end_token_ids, *spec.image_token_ids}
        ordinary = (token for token in count(7919 * number) if token % spec.vocab_size not in special)
        length = min(PROMPT_TOKENS, self._engine.max_length - 1)
        prompt = tuple(next(ordinary) % spec.vocab_size for _ in range(length))
        return Request(name, prompt, SamplingParameters(temperature=1.0, seed=number, ignore_eos=True))
