"""Launches of routing's Triton kernels, for every GPU."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import PackedMatrix, WeightFormat
from draftproof.kernels.routing import triton_kernels as kernels
from draftproof.kernels.routing.routing import (
    BLOCK_PAIRS,
    FEW_ROWS,
    FewRowsRouting,
    ManyRowsRouting,
    Routing,
    RoutingScratch,
)

MOST_ROWS = 512
"""Rows whose pairs one program can count in registers."""

EXPERTS_SORTED = 16
"""Experts that one program of the sort places pairs of."""


def supports_route(
    residual: Tensor,
    norm: NormScale,
    router: PackedMatrix,
    spec: MoeSpec,
    scratch: RoutingScratch,
    routing: Routing,
) -> str | None:
    """Why this call cannot run here, or None."""
    if router.format is not WeightFormat.BF16:
        return f"the router is {router.format.value}, not bf16"
    if residual.shape[0] > MOST_ROWS:
        return f"{residual.shape[0]} rows, at most {MOST_ROWS}"
    return None


def route(
    residual: Tensor,
    norm: NormScale,
    router: PackedMatrix,
    spec: MoeSpec,
    scratch: RoutingScratch,
    routing: Routing,
) -> None:
    """Choose each row's experts; arguments as in the reference."""
    rows, hidden = residual.shape
    tiles, chunks = router.blocks.shape[:2]
    k_block = 256 if chunks * 32 >= 256 else triton.next_power_of_2(chunks * 32)
    kernels.router_logits[(tiles, triton.cdiv(rows, 16))](
        residual, norm.weight, router.blocks.view(torch.bfloat16), scratch.logits, rows, norm.epsilon,
        residual.stride(0), scratch.logits.stride(0), hidden, chunks, k_block, num_warps=4, num_stages=3,
    )  # fmt: skip
    choose(spec, scratch, routing)


def choose(spec: MoeSpec, scratch: RoutingScratch, routing: Routing) -> None:
    """Everything behind the router's product, from `scratch.logits`."""
    rows, per_token, experts = scratch.chosen.shape[0], spec.experts_per_token, spec.num_experts
    width = triton.next_power_of_2(experts)
    shared = spec.shared_intermediate_size > 0
    if isinstance(routing, FewRowsRouting):
        kernels.choose_few_rows[(1,)](
            scratch.logits, routing.distinct, routing.row_weights, routing.shared_weight, rows,
            scratch.logits.stride(0), routing.row_weights.shape[0], experts, width, per_token, FEW_ROWS,
            spec.normalize_top_k, shared, num_warps=8,
        )  # fmt: skip
        return
    kernels.choose_row[(rows,)](
        scratch.logits, scratch.chosen, scratch.weights, routing.shared_weight, scratch.logits.stride(0),
        experts, width, per_token, spec.normalize_top_k, shared, num_warps=1,
    )  # fmt: skip
    sort_pairs(spec, scratch.chosen, scratch.weights, routing)


def sort_pairs(spec: MoeSpec, chosen: Tensor, weights: Tensor, routing: ManyRowsRouting) -> None:
    """Sort pairs by expert, then by row; all of `routing` but `shared_weight` is written.

    Args:
        spec: of the layer.
        chosen: [rows, experts per token] int32.
        weights: the same shape, float32.
        routing: for as many rows.
    """
    rows, per_token, experts = chosen.shape[0], spec.experts_per_token, spec.num_experts
    kernels.place_pairs[(triton.cdiv(experts, EXPERTS_SORTED),)](
        chosen, weights, routing.offsets, routing.pair_rows, routing.pair_weights,
        routing.pair_places, routing.blocks, rows, routing.blocks.shape[0] - 1, experts,
        triton.next_power_of_2(experts + 1), per_token, triton.next_power_of_2(rows), EXPERTS_SORTED,
        BLOCK_PAIRS, num_warps=8,
    )  # fmt: skip
