"""Experts of a prompt's rows on a GPU: the kernels of many rows, a few hundred rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step import cuda_many_rows, triton
from draftproof.kernels.experts_step.operands import experts_scratch
from draftproof.kernels.packed_weights.formats import PackedExperts
from draftproof.kernels.routing.routing import ManyRowsRouting, most_blocks
from draftproof.kernels.routing.triton import MOST_ROWS, sort_pairs


def experts_of_prompt(
    rows: Tensor,
    chosen: Tensor,
    weights: Tensor,
    spec: MoeSpec,
    experts: PackedExperts,
) -> Tensor:
    """The weighted sum of each row's routed experts.

    Args:
        rows: [rows, hidden] bfloat16, normed.
        chosen: [rows, experts per token] integers.
        weights: the same shape, float32.
        spec: of the layer.
        experts: its experts.

    Returns:
        [rows, hidden] bfloat16.
    """
    output = torch.zeros_like(rows)
    unfit = cuda_many_rows.unsupported(rows, experts, None)
    add = triton.add_experts if unfit else cuda_many_rows.add_experts
    numbers, shares = chosen.int(), weights.float()
    for first in range(0, len(rows), MOST_ROWS):
        part = slice(first, first + MOST_ROWS)
        source = rows[part].contiguous()
        routing = _room_for_routing(len(source), spec, rows.device)
        sort_pairs(spec, numbers[part].contiguous(), shares[part].contiguous(), routing)
        room = experts_scratch(len(source), routing, experts, None)
        add(source, output[part], None, experts, None, routing, room)
    return output


def _room_for_routing(rows: int, spec: MoeSpec, device: torch.device) -> ManyRowsRouting:
    """Not filled: sorting writes all of it."""

    def room(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    pairs = rows * spec.experts_per_token
    return ManyRowsRouting(
        offsets=room(spec.num_experts + 1),
        pair_rows=room(pairs),
        pair_weights=room(pairs, dtype=torch.float32),
        pair_places=room(rows, spec.experts_per_token),
        blocks=room(1 + most_blocks(rows, spec)),
        shared_weight=room(rows, dtype=torch.float32),
    )
