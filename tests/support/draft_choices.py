"""Choices of K that a test dictates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.speculation.draft_choice import Decision, DraftArm


class PatternChoice:
    """K by a pattern, whatever happens.

    Attributes:
        steps: what it was told: the decision that a step followed, its seconds if they count, its acceptance.
        limits: of the batches that it was asked about.
    """

    def __init__(self, pattern: Sequence[int]) -> None:
        self._pattern = cycle(pattern)
        self.steps: list[tuple[Decision, float | None, AcceptanceCounts]] = []
        self.limits: list[tuple[int, ...]] = []

    def choose(self, limits: Sequence[int]) -> Decision:
        self.limits.append(tuple(limits))
        return Decision(len(limits), min(next(self._pattern), max(limits)))

    def observe(self, decision: Decision, seconds: float | None, acceptance: AcceptanceCounts) -> None:
        self.steps.append((decision, seconds, acceptance))

    def arms(self) -> tuple[DraftArm, ...]:
        return ()
