"""What the GPU forms of `experts_of_prompt` share: the kernels of many rows, a few hundred rows at a time."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step.operands import ExpertsScratch, SharedExpert, experts_scratch
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import PackedExperts
from draftproof.kernels.routing.routing import ManyRowsRouting, most_blocks
from draftproof.kernels.routing.triton import MOST_ROWS, sort_pairs


class AddExperts(Protocol):
    """Adds the experts of the rows of `source` to `residual`, as `cuda_many_rows.add_experts`."""

    def __call__(
        self,
        source: Tensor,
        residual: Tensor,
        norm: NormScale | None,
        experts: PackedExperts,
        shared: SharedExpert | None,
        routing: ManyRowsRouting,
        scratch: ExpertsScratch,
    ) -> None: ...


def in_parts(
    add: AddExperts, rows: Tensor, chosen: Tensor, weights: Tensor, spec: MoeSpec, experts: PackedExperts
) -> Tensor:
    """`experts_of_prompt` by a kernel of many rows; other arguments and the result as in the reference."""
    output = torch.zeros_like(rows)
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
