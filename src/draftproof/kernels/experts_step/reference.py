"""Plain torch definition of a step's experts."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step.operands import ExpertsScratch, SharedExpert
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import PackedExperts, PackedMatrix
from draftproof.kernels.packed_weights.unpacking import unpack
from draftproof.kernels.routing.routing import FewRowsRouting, ManyRowsRouting, Routing


def experts_step(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: Routing,
    scratch: ExpertsScratch,
) -> None:
    """residual += sum of each row's weighted experts and of the gated shared expert, of the normed rows.

    The norm's weight is multiplied in before the product, rounded to the residual's dtype, and 1 / rms behind
    it, in float32. The activations between the two matrices are of that dtype too. All sums are float32, and
    the new residual is rounded once.

    Args:
        residual: [rows, hidden] bfloat16 (any float dtype here), contiguous; updated in place.
        norm: RMSNorm before the experts.
        experts: the routed experts.
        shared: the expert of every row; None when the model has none.
        routing: of these rows, as `route` leaves it. Padding rows have any.
        scratch: `experts_scratch` for at least as many rows.
    """
    rows, inverse = normed_rows(residual, norm)
    total = residual.float()
    for expert, weight in routing_table(routing, len(rows)).items():
        gate_up, down = expert_matrices(experts, expert)
        total += weight.unsqueeze(1) * _expert(rows, inverse, gate_up, down, residual.dtype)
    if shared is not None:
        weight = routing.shared_weight[: len(rows)].unsqueeze(1)
        total += weight * _expert(rows, inverse, shared.gate_up, shared.down, residual.dtype)
    residual.copy_(total)


def experts_of_prompt(
    rows: Tensor, chosen: Tensor, weights: Tensor, spec: MoeSpec, experts: PackedExperts
) -> Tensor:
    """The weighted sum of each row's routed experts, for a prompt's rows. Activations are rounded to the
    dtype of the rows, sums are float32.

    Args:
        rows: [rows, hidden] bfloat16 (any float dtype here), normed.
        chosen: [rows, experts per token] integers.
        weights: the same shape, float32.
        spec: of the layer.
        experts: its experts.

    Returns:
        [rows, hidden] in the dtype of `rows`.
    """
    total = torch.zeros(rows.shape, dtype=torch.float32, device=rows.device)
    counts = torch.bincount(chosen.flatten().long(), minlength=spec.num_experts)
    for expert in counts.nonzero().flatten().tolist():
        row, place = (chosen == expert).nonzero(as_tuple=True)
        normed = rows[row].float()
        gate_up, down = expert_matrices(experts, expert)
        product = _expert(normed, torch.ones_like(normed[:, :1]), gate_up, down, rows.dtype)
        total.index_add_(0, row, product * weights[row, place].float().unsqueeze(1))
    return total.to(rows.dtype)


def normed_rows(residual: Tensor, norm: NormScale) -> tuple[Tensor, Tensor]:
    """Rows times the norm's weight in their dtype (as float32), and 1 / rms, [rows, 1]."""
    wide = residual.float()
    inverse = torch.rsqrt(wide.square().mean(1, keepdim=True) + norm.epsilon)
    return (wide * norm.weight).to(residual.dtype).float(), inverse


def routing_table(routing: Routing, rows: int) -> dict[int, Tensor]:
    """Weight of each chosen expert for every row, [rows] float32, 0 where it was not chosen."""
    if isinstance(routing, FewRowsRouting):
        count = int(routing.distinct[0])
        listed = routing.distinct[1 : 1 + count].tolist()
        return {expert: routing.row_weights[place, :rows] for place, expert in enumerate(listed)}
    return _table_of_pairs(routing, rows)


def expert_matrices(experts: PackedExperts, expert: int) -> tuple[PackedMatrix, PackedMatrix]:
    """One expert's gate and up (paired), and its down."""

    def of(part: Tensor | None) -> Tensor | None:
        return None if part is None else part[expert]

    gate_up = PackedMatrix(
        experts.format,
        2 * experts.intermediate,
        experts.hidden,
        experts.gate_up[expert],
        of(experts.gate_up_scale),
        of(experts.gate_up_block_scale),
        paired=True,
    )
    down = PackedMatrix(
        experts.format,
        experts.hidden,
        experts.intermediate,
        experts.down[expert],
        of(experts.down_scale),
        of(experts.down_block_scale),
    )
    return gate_up, down


def _expert(
    rows: Tensor, inverse: Tensor, gate_up: PackedMatrix, down: PackedMatrix, dtype: torch.dtype
) -> Tensor:
    product = (rows @ unpack(gate_up, torch.float32).t()) * inverse
    gate, up = product.chunk(2, 1)
    activated = (F.silu(gate) * up).to(dtype).float()
    return activated @ unpack(down, torch.float32).t()


def _table_of_pairs(routing: ManyRowsRouting, rows: int) -> dict[int, Tensor]:
    table = {}
    offsets = routing.offsets.tolist()
    for expert, (first, end) in enumerate(pairwise(offsets)):
        if end > first:
            weights = routing.pair_weights.new_zeros(rows)
            weights[routing.pair_rows[first:end].long()] = routing.pair_weights[first:end]
            table[expert] = weights
    return table
