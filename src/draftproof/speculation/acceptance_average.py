"""How often drafts are accepted lately, by position: what a choice of K goes by. Needs no torch."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from draftproof.speculation.acceptance import AcceptanceCounts

MEMORY = 256
"""Drafts of a position that count: an older one weighs 1/e."""

EXPECTED_RATE = 0.75
"""Before a draft was seen: what a trained head reaches, so that drafting is tried."""

EXPECTED_WEIGHT = 4.0
"""Drafts that the expectation is worth; gone after a few windows."""


class AcceptanceAverage:
    """Running conditional rates.

    A position's rate is accepted / reached: a draft there counts once all drafts before it were accepted. So
    windows of any K may follow each other: a short window says nothing about the positions that it lacks, and
    leaves their rates alone.

    Args:
        positions: largest K.
    """

    def __init__(self, positions: int) -> None:
        self._reached = [EXPECTED_WEIGHT] * positions
        self._accepted = [EXPECTED_WEIGHT * EXPECTED_RATE] * positions

    def observe(self, counts: AcceptanceCounts) -> None:
        """Take note of passes; positions beyond the largest K are ignored."""
        for position, (reached, accepted) in enumerate(zip(counts.reached, counts.accepted, strict=True)):
            if reached and position < len(self._reached):
                kept = (1.0 - 1.0 / MEMORY) ** reached
                self._reached[position] = self._reached[position] * kept + reached
                self._accepted[position] = self._accepted[position] * kept + accepted

    @property
    def rates(self) -> tuple[float, ...]:
        """By position: how often a draft is accepted once all before it are."""
        return tuple(
            accepted / reached for accepted, reached in zip(self._accepted, self._reached, strict=True)
        )

    @property
    def expected_tokens(self) -> tuple[float, ...]:
        """By K = 0, 1, ...: tokens that a window of K drafts can be expected to add."""
        return tuple(accumulate(accumulate(self.rates, mul), initial=1.0))
