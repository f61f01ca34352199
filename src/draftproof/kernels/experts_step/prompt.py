"""Experts of a prompt's rows on a GPU: the kernels of many rows, a few hundred rows at a time."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step import cuda_many_rows, triton
from draftproof.kernels.experts_step.operands import SharedExpert, experts_scratch
from draftproof.kernels.packed_weights.formats import PackedExperts
from draftproof.kernels.routing.routing import allocate_many_rows, routing_scratch
from draftproof.kernels.routing.triton import MOST_ROWS, sort_pairs


def experts_of_prompt(
    rows: Tensor,
    chosen: Tensor,
    weights: Tensor,
    share: Tensor | None,
    spec: MoeSpec,
    experts: PackedExperts,
    shared: SharedExpert | None,
) -> Tensor:
    """The weighted sum of each row's experts and its shared expert.

    Args:
        rows: [rows, hidden] bfloat16, normed.
        chosen: [rows, experts per token] integers.
        weights: the same shape, float32.
        share: [rows] float32, weight of the shared expert; None without one.
        spec: of the layer.
        experts: the routed experts.
        shared: the expert of every row.

    Returns:
        [rows, hidden] bfloat16.
    """
    output = torch.zeros_like(rows)
    for first in range(0, len(rows), MOST_ROWS):
        part = slice(first, first + MOST_ROWS)
        source = rows[part].contiguous()
        count = len(source)
        routing = allocate_many_rows(count, spec, rows.device)
        scratch = replace(
            routing_scratch(count, spec, 0, rows.device),
            chosen=chosen[part].int().contiguous(),
            weights=weights[part].contiguous(),
        )
        sort_pairs(spec, scratch, routing)
        if share is not None:
            routing = replace(routing, shared_weight=share[part].contiguous())
        room = experts_scratch(count, routing, experts, shared)
        unfit = cuda_many_rows.unsupported(source, experts, shared)
        add = triton.add_experts if unfit else cuda_many_rows.add_experts
        add(source, output[part], None, experts, shared, routing, room)
    return output
