"""Plain torch definition of routing."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import PackedMatrix
from draftproof.kernels.packed_weights.unpacking import unpack
from draftproof.kernels.routing.routing import (
    BLOCK_PAIRS,
    FEW_ROWS,
    FewRowsRouting,
    ManyRowsRouting,
    Routing,
    RoutingScratch,
)


def route(
    residual: Tensor,
    norm: NormScale,
    router: PackedMatrix,
    spec: MoeSpec,
    scratch: RoutingScratch,
    routing: Routing,
) -> None:
    """Choose each row's experts: RMSNorm, router, softmax in float32, the largest probabilities.

    Of equal logits the lower expert wins; NaN counts as less than every number, so that any input chooses
    valid, distinct experts.

    Args:
        residual: [rows, hidden] bfloat16 (any float dtype here), the residual stream before the layer's norm.
        norm: weight and epsilon of that norm.
        router: BF16 [experts, hidden]; with a shared expert, its gate is one more row.
        spec: counts, and whether the chosen probabilities are normalised.
        scratch: `routing_scratch`.
        routing: `allocate_routing(rows, spec)`; overwritten.
    """
    logits = router_logits(residual, norm, router)
    scratch.logits[:, : router.rows] = logits
    weights, chosen = choose(logits[:, : spec.num_experts], spec)
    scratch.chosen.copy_(chosen)
    scratch.weights.copy_(weights)
    gate = logits[:, spec.num_experts :]
    shared = torch.sigmoid(gate[:, 0]) if gate.shape[1] else logits.new_zeros(len(logits))
    if isinstance(routing, FewRowsRouting):
        list_distinct(weights, chosen, shared, routing)
    else:
        sort_pairs(weights, chosen, shared, routing)


def router_logits(residual: Tensor, norm: NormScale, router: PackedMatrix) -> Tensor:
    """[rows, router.rows] float32, with the norm as the kernels apply it: its weight before the product,
    rounded to the residual's dtype, and the rows' scale behind it."""
    wide = residual.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + norm.epsilon)
    weighted = (wide * norm.weight).to(residual.dtype).float()
    return weighted @ unpack(router, torch.float32).t() * scale


def choose(logits: Tensor, spec: MoeSpec) -> tuple[Tensor, Tensor]:
    """Weights (float32) and numbers (int64) of each row's experts, both [rows, experts per token], best
    first."""
    order = torch.where(logits.isnan(), -torch.inf, logits).sort(dim=-1, descending=True, stable=True)
    largest, chosen = (part[:, : spec.experts_per_token] for part in order)
    if spec.normalize_top_k:
        return largest.softmax(-1), chosen
    return (largest - logits.logsumexp(-1, keepdim=True)).exp(), chosen


def list_distinct(weights: Tensor, chosen: Tensor, shared: Tensor, routing: FewRowsRouting) -> None:
    """Fill the form for few rows."""
    rows = len(chosen)
    for part in (routing.distinct, routing.row_weights, routing.shared_weight):
        part.zero_()
    distinct, place = torch.unique(chosen, sorted=True, return_inverse=True)
    routing.distinct[0] = len(distinct)
    routing.distinct[1 : 1 + len(distinct)] = distinct
    routing.row_weights[place, torch.arange(rows, device=place.device).unsqueeze(1).expand_as(place)] = (
        weights
    )
    routing.shared_weight[:rows] = shared
    assert rows <= FEW_ROWS


def sort_pairs(weights: Tensor, chosen: Tensor, shared: Tensor, routing: ManyRowsRouting) -> None:
    """Fill the form for many rows."""
    per_token, experts = chosen.shape[1], len(routing.offsets) - 1
    order = chosen.flatten().sort(stable=True).indices
    routing.pair_rows.copy_(order // per_token)
    routing.pair_weights.copy_(weights.flatten()[order])
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    routing.pair_places.copy_(places.view_as(chosen))
    counts = chosen.flatten().bincount(minlength=experts)
    routing.offsets[0] = 0
    routing.offsets[1:] = counts.cumsum(0)
    blocks = [
        expert * 65536 + block
        for expert, count in enumerate(counts.tolist())
        for block in range(-(-count // BLOCK_PAIRS))
    ]
    routing.blocks.zero_()
    routing.blocks[0] = len(blocks)
    routing.blocks[1 : 1 + len(blocks)] = torch.tensor(blocks, device=routing.blocks.device)
    routing.shared_weight.copy_(shared)
