"""What a step costs, by batch size and K: measured at a few batch sizes, interpolated between them. Needs no
torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise


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
        measured: at least one for each K of 0, 1, ..., the largest; several of one size and K count by their
            least, for nothing makes a step faster than it is.

    Raises:
        ValueError: a K is missing, or a measurement is not positive.
    """

    def __init__(self, measured: Iterable[StepCost]) -> None:
        least: dict[int, dict[int, float]] = {}
        for cost in measured:
            if cost.batch < 1 or cost.draft_tokens < 0 or not 0.0 < cost.seconds < float("inf"):
                raise ValueError(f"{cost} cannot be")
            by_batch = least.setdefault(cost.draft_tokens, {})
            by_batch[cost.batch] = min(cost.seconds, by_batch.get(cost.batch, cost.seconds))
        if sorted(least) != list(range(max(1, len(least)))):
            raise ValueError(f"steps were measured with K in {sorted(least)}, which leaves one out")
        self._points = tuple(tuple(sorted(least[draft_tokens].items())) for draft_tokens in range(len(least)))

    @property
    def most_drafts(self) -> int:
        """Largest K that was measured."""
        return len(self._points) - 1

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes that were measured with K = 0, in order."""
        return tuple(batch for batch, _ in self._points[0])

    def seconds(self, batch: int, draft_tokens: int) -> float:
        """Of a step of `batch` sequences: on the line between the measured sizes around it, and beyond them
        in proportion to the line's end."""
        points = self._points[draft_tokens]
        if batch <= points[0][0]:
            return points[0][1]
        for (low, least), (high, most) in pairwise(points):
            if batch <= high:
                return least + (most - least) * (batch - low) / (high - low)
        return points[-1][1] * batch / points[-1][0]
