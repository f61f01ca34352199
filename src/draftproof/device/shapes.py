"""Which steps there are: a bucket of sequences and a number of drafts. Each has its own buffers and graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.errors import UsageError

BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""Sequences of one step; a batch runs in the smallest bucket that holds it."""

MAX_DEVICE_DRAFTS = 7
"""Most drafts of a device step: its kernels take up to 8 rows of a sequence."""


@dataclass(frozen=True, order=True)
class StepShape:
    """What decides the form of a step.

    Attributes:
        batch: places for sequences; unused ones point at the scrap slot.
        draft_tokens: K; every sequence has K + 1 rows.
    """

    batch: int
    draft_tokens: int

    @property
    def rows(self) -> int:
        """Rows of one sequence."""
        return self.draft_tokens + 1

    @property
    def all_rows(self) -> int:
        """Rows of the step."""
        return self.batch * self.rows


def bucket_of(sequences: int) -> int:
    """The smallest bucket that holds a batch.

    Raises:
        UsageError: there is none.
    """
    for bucket in BUCKETS:
        if sequences <= bucket:
            return bucket
    raise UsageError(f"a step of {sequences} sequences is more than the largest one of {BUCKETS[-1]}")


def representative_shapes(largest: StepShape) -> tuple[StepShape, ...]:
    """One sequence without drafts and with all of them, and the largest steps of both kinds."""
    batches, drafts = sorted({1, bucket_of(largest.batch)}), sorted({0, largest.draft_tokens})
    return tuple(StepShape(batch, count) for batch in batches for count in drafts)


def padded_slots(slots: Sequence[int], scrap_slot: int) -> list[int]:
    """A batch's slots, filled up to its bucket with the scrap slot."""
    return [*slots, *[scrap_slot] * (bucket_of(len(slots)) - len(slots))]
