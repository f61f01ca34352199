"""Experts of more rows than the one-launch kernel takes: pairs sorted by expert, in CUDA, from SM90 on."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step import cuda_many_rows
from draftproof.kernels.experts_step.operands import ExpertsScratch, SharedExpert
from draftproof.kernels.experts_step.prompt import in_parts
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import PackedExperts
from draftproof.kernels.routing.routing import ManyRowsRouting, Routing


def supports_experts_step(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: Routing,
    scratch: ExpertsScratch,
) -> str | None:
    """Why this call cannot run here, or None."""
    if not isinstance(routing, ManyRowsRouting):
        return f"{residual.shape[0]} rows are not sorted by expert"
    return cuda_many_rows.unsupported(residual, experts, shared)


def experts_step(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: Routing,
    scratch: ExpertsScratch,
) -> None:
    """As in the reference."""
    assert isinstance(routing, ManyRowsRouting)
    cuda_many_rows.add_experts(residual, residual, norm, experts, shared, routing, scratch)


def supports_experts_of_prompt(
    rows: Tensor, chosen: Tensor, weights: Tensor, spec: MoeSpec, experts: PackedExperts
) -> str | None:
    """Why this call cannot run here, or None."""
    if rows.dtype is not torch.bfloat16:
        return f"rows in {rows.dtype}"
    return cuda_many_rows.unsupported(rows, experts, None)


def experts_of_prompt(
    rows: Tensor, chosen: Tensor, weights: Tensor, spec: MoeSpec, experts: PackedExperts
) -> Tensor:
    """As in the reference."""
    return in_parts(cuda_many_rows.add_experts, rows, chosen, weights, spec, experts)
