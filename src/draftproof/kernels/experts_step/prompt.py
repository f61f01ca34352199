"""Experts of a prompt's rows on a GPU: the kernels of many rows, a few hundred rows at a time."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step import cuda_many_rows, triton
from draftproof.kernels.experts_step.operands import experts_scratch
from draftproof.kernels.packed_weights.formats import PackedExperts
from draftproof.kernels.routing.routing import allocate_many_rows, routing_scratch
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
        room = experts_scratch(count, routing, experts, None)
        add = triton.add_experts if unfit else cuda_many_rows.add_experts
        add(source, output[part], None, experts, None, routing, room)
    return output
