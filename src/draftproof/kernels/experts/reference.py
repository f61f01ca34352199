"""Plain torch definition of the routed experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

ALL_ROWS_LIMIT = 16
"""Up to this many rows, every distinct expert runs on all rows (routing weight 0 where it was not chosen):
the extra arithmetic costs less than picking rows apart."""


@dataclass(frozen=True)
class Experts:
    """One layer's routed experts, whatever the storage of their weights.

    Attributes:
        gate_up: per expert, [rows, hidden] to [rows, 2 * intermediate]: gate, then up.
        down: per expert, [rows, intermediate] to [rows, hidden].
    """

    gate_up: tuple[Callable[[Tensor], Tensor], ...]
    down: tuple[Callable[[Tensor], Tensor], ...]


def routed_experts(rows: Tensor, chosen: Tensor, routing: Tensor, experts: Experts) -> Tensor:
    """Apply each row's experts.

    Args:
        rows: [rows, hidden].
        chosen: [rows, experts_per_token] int64, distinct within a row.
        routing: [rows, experts_per_token] weights of the chosen experts, in the dtype of `rows`.
        experts: the experts.

    Returns:
        [rows, hidden].
    """
    distinct = sorted(set(chosen.flatten().tolist()))
    if rows.shape[0] > ALL_ROWS_LIMIT:
        return _by_picking_rows(rows, chosen, routing, experts, distinct)
    # Routing weight of every distinct expert for every row, zero where not chosen: [distinct, rows, 1].
    table = rows.new_zeros(rows.shape[0], len(experts.down)).scatter_(1, chosen, routing)
    scale = table[:, distinct].t().unsqueeze(-1)
    gate, up = torch.stack([experts.gate_up[expert](rows) for expert in distinct]).chunk(2, -1)
    activated = (F.silu(gate).mul_(up).mul_(scale)).unbind(0)
    output: Tensor = experts.down[distinct[0]](activated[0])
    for expert, part in zip(distinct[1:], activated[1:], strict=True):
        output += experts.down[expert](part)
    return output


def _by_picking_rows(
    rows: Tensor, chosen: Tensor, routing: Tensor, experts: Experts, distinct: list[int]
) -> Tensor:
    output = torch.zeros_like(rows)
    for expert in distinct:
        row_index, choice = (chosen == expert).nonzero(as_tuple=True)
        gate, up = experts.gate_up[expert](rows[row_index]).chunk(2, -1)
        weighted = F.silu(gate) * up * routing[row_index, choice].unsqueeze(-1)
        output.index_add_(0, row_index, experts.down[expert](weighted))
    return output
