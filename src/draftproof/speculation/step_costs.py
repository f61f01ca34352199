"""What a step costs, by batch size and K: measured at some of them, interpolated between. Needs no torch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StepCost:
    """One measurement.

    Attributes:
        batch: sequences of the step.
        draft_tokens: K of all of them.
        seconds: of the whole step: verify, sample, accept, draft.
    """

    batch: int
    draft_tokens: int
    seconds: float


class StepCosts:
    """Seconds of a step of any size.

    Args:
        measured: the same K at every batch size, 0 among them. Several of one size and K count by their
            least, for nothing makes a step faster than it is.

    Raises:
        ValueError: a batch size lacks a K that another one has, or a measurement is not positive.
    """

    def __init__(self, measured: Iterable[StepCost]) -> None:
        least: dict[int, dict[int, float]] = {}
        for cost in measured:
            if cost.batch < 1 or cost.draft_tokens < 0 or not 0.0 < cost.seconds < float("inf"):
                raise ValueError(f"{cost} cannot be")
            row = least.setdefault(cost.batch, {})
            row[cost.draft_tokens] = min(cost.seconds, row.get(cost.draft_tokens, cost.seconds))
        drafts = {tuple(sorted(row)) for row in least.values()}
        if len(drafts) != 1 or 0 not in min(drafts):
            raise ValueError(f"measured with K in {sorted(drafts)}: the same at every batch size, and 0 too")
        self.batches = tuple(sorted(least))
        self._drafts = min(drafts)
        self._rows = {batch: [row[arm] for arm in self._drafts] for batch, row in least.items()}
        self._known: dict[tuple[int, int], float] = {}

    @property
    def most_drafts(self) -> int:
        """Largest K that was measured."""
        return self._drafts[-1]

    def seconds(self, batch: int, draft_tokens: int) -> float:
        """Of a step: on the line between the measurements around it. A batch beyond the largest measured one
        costs in proportion to that one, one below the smallest as much as the smallest."""
        key = batch, draft_tokens
        if key not in self._known:
            self._known[key] = self._interpolated(batch, draft_tokens)
        return self._known[key]

    def _interpolated(self, batch: int, draft_tokens: int) -> float:
        column = [_on_line(self._drafts, self._rows[size], draft_tokens) for size in self.batches]
        if batch > self.batches[-1]:
            return column[-1] * batch / self.batches[-1]
        return _on_line(self.batches, column, batch)


def _on_line(places: Sequence[int], values: Sequence[float], place: int) -> float:
    """Value at `place` on the lines that join the points; before the first and after the last one theirs."""
    upper = bisect_left(places, place)
    if upper == 0 or upper == len(places):
        return values[0] if upper == 0 else values[-1]
    low, high = places[upper - 1], places[upper]
    share = (place - low) / (high - low)
    return values[upper - 1] + (values[upper] - values[upper - 1]) * share
