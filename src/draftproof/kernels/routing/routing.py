"""The outcome of routing a step's rows, on the device."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

FEW_ROWS = 8
"""Up to this many rows every distinct expert runs on all rows, weight 0 where a row did not choose it."""


@dataclass(frozen=True)
class FewRowsRouting:
    """For at most `FEW_ROWS` rows.

    Attributes:
        distinct: [1 + experts listed] int32: how many distinct experts, then their ids, ascending.
        row_weights: [experts listed, FEW_ROWS] float32 in the order of `distinct`; 0 where a row did not
            choose the expert. The room is min(experts, rows * experts per token).
        shared_weight: [FEW_ROWS] float32, sigmoid of the shared expert's gate; unused without a shared
            expert.
    """

    distinct: Tensor
    row_weights: Tensor
    shared_weight: Tensor


@dataclass(frozen=True)
class ManyRowsRouting:
    """For more rows: (row, expert) pairs sorted by expert, then by row.

    Attributes:
        offsets: [experts + 1] int32, where each expert's pairs begin.
        pair_rows: [rows * experts per token] int32, row of each pair.
        pair_weights: the same shape, float32.
        pair_places: [rows, experts per token] int32, where each row's pairs went.
        shared_weight: [rows] float32.
    """

    offsets: Tensor
    pair_rows: Tensor
    pair_weights: Tensor
    pair_places: Tensor
    shared_weight: Tensor
