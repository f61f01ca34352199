"""Plain torch definition of the routed experts."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

DENSE_ROW_LIMIT = 16
"""Up to this many rows, every distinct expert runs on all rows (routing weight 0 where it was not chosen):
the extra arithmetic costs less than picking rows apart."""


class ExpertWeights(Protocol):
    """Weights of one layer's routed experts, whatever their storage."""

    num_experts: int

    def gate_up(self, expert: int) -> Tensor:
        """[2 * intermediate, hidden]: gate rows, then up rows, in the compute dtype."""
        ...

    def down(self, expert: int) -> Tensor:
        """[hidden, intermediate] in the compute dtype."""
        ...


def routed_experts(rows: Tensor, chosen: Tensor, routing: Tensor, weights: ExpertWeights) -> Tensor:
    """Apply each row's experts.

    Args:
        rows: [rows, hidden].
        chosen: [rows, experts_per_token] int64, distinct within a row.
        routing: [rows, experts_per_token] weights of the chosen experts, in the dtype of `rows`.
        weights: the experts.

    Returns:
        [rows, hidden].
    """
    distinct = sorted(set(chosen.flatten().tolist()))
    if rows.shape[0] > DENSE_ROW_LIMIT:
        return _by_picking_rows(rows, chosen, routing, weights, distinct)
    # routing weight of every distinct expert for every row, zero where not chosen: [distinct, rows, 1]
    table = rows.new_zeros(rows.shape[0], weights.num_experts).scatter_(1, chosen, routing)
    scale = table[:, distinct].t().unsqueeze(-1)
    projected = torch.stack([F.linear(rows, weights.gate_up(expert)) for expert in distinct])
    gate, up = projected.chunk(2, -1)
    activated = F.silu(gate) * up * scale
    output = F.linear(activated[0], weights.down(distinct[0]))
    for index, expert in enumerate(distinct[1:], 1):
        output.addmm_(activated[index], weights.down(expert).t())
    return output


def _by_picking_rows(
    rows: Tensor, chosen: Tensor, routing: Tensor, weights: ExpertWeights, distinct: list[int]
) -> Tensor:
    output = torch.zeros_like(rows)
    for expert in distinct:
        row_index, choice = (chosen == expert).nonzero(as_tuple=True)
        gate, up = F.linear(rows[row_index], weights.gate_up(expert)).chunk(2, -1)
        result = F.linear(F.silu(gate) * up * routing[row_index, choice].unsqueeze(-1), weights.down(expert))
        output.index_add_(0, row_index, result)
    return output
