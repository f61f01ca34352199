"""Where the rows of a device step stand, in tensors that its kernels read and its last kernel moves."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class StepGeometry:
    """Geometry of a window of `rows` rows for each of a bucket's sequences; row b * rows + j is row j of
    sequence b.

    Nothing here changes during a step. A bucket's unused places point at a scrap slot, whose pages are the
    scrap page.

    Attributes:
        rows: rows of each sequence (drafts + 1), at most 8.
        slots: [batch] int32, the sequences' slots.
        lengths: [slots] int32, committed positions: row j of a sequence stands at position lengths[slot] + j.
        pending: [slots] int32, rows of the stash that are accepted and not yet in the recurrent state.
        parity: [slots] int32, 0 or 1: which side of the double-buffered pools holds the newest window.
        page_table: [slots, pages per sequence] int32.
        page_size: positions of a page.
    """

    rows: int
    slots: Tensor
    lengths: Tensor
    pending: Tensor
    parity: Tensor
    page_table: Tensor
    page_size: int

    @property
    def batch(self) -> int:
        """Sequences of the bucket."""
        return self.slots.shape[0]
