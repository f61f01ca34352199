"""Routing in CUDA for GPUs from SM90 on: up to 8 rows in one launch."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.cuda.compiler import is_available
from draftproof.kernels.cuda.launch import Kernel, load_kernel
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import PackedMatrix, WeightFormat
from draftproof.kernels.routing.routing import FewRowsRouting, Routing, RoutingScratch

SOURCE = Path(__file__).parent / "few_rows.cu"
INPUTS = 8
"""Of every row, by one thread."""
ROUTER_ROWS = 2
"""Of the router's rows, by one block."""
LEAST_HIDDEN, MOST_HIDDEN, HIDDEN_MULTIPLE = 1024, 8192, 256
MOST_EXPERTS, MOST_CHOSEN = 512, 32


def supports_route(
    residual: Tensor,
    norm: NormScale,
    router: PackedMatrix,
    spec: MoeSpec,
    scratch: RoutingScratch,
    routing: Routing,
) -> str | None:
    """Why this call cannot run here, or None."""
    hidden = residual.shape[1]
    if not isinstance(routing, FewRowsRouting):
        return f"{residual.shape[0]} rows are for the portable kernels"
    if router.format is not WeightFormat.BF16:
        return f"the router is {router.format.value}, not bf16"
    if not LEAST_HIDDEN <= hidden <= MOST_HIDDEN or hidden % HIDDEN_MULTIPLE:
        return (
            f"hidden size {hidden} is no multiple of {HIDDEN_MULTIPLE} from {LEAST_HIDDEN} to {MOST_HIDDEN}"
        )
    if spec.num_experts > MOST_EXPERTS or spec.experts_per_token > MOST_CHOSEN:
        return f"{spec.num_experts} experts, at most {MOST_EXPERTS}"
    if torch.cuda.get_device_capability(residual.device) < (9, 0):
        return "it needs compute capability 9.0"
    return None if is_available() else "cuda-bindings is not installed"


def route(
    residual: Tensor,
    norm: NormScale,
    router: PackedMatrix,
    spec: MoeSpec,
    scratch: RoutingScratch,
    routing: Routing,
) -> None:
    """Choose each row's experts; arguments as in the reference. Of `scratch`, logits and arrivals."""
    assert isinstance(routing, FewRowsRouting)
    rows, hidden = residual.shape
    kernel = _kernel(rows, hidden, spec, residual.device)
    arguments = (
        residual, norm.weight, router.blocks, scratch.logits, scratch.arrivals, routing.distinct,
        routing.row_weights, routing.shared_weight, residual.stride(0), scratch.logits.stride(0),
        norm.epsilon,
    )  # fmt: skip
    kernel.launch((-(-router.rows // ROUTER_ROWS),), hidden // INPUTS, arguments)


def _kernel(rows: int, hidden: int, spec: MoeSpec, device: torch.device) -> Kernel:
    return load_kernel(
        SOURCE,
        "route_few_rows",
        device,
        ROWS=rows,
        HIDDEN=hidden,
        EXPERTS=spec.num_experts,
        TOP=spec.experts_per_token,
        SHARED=int(spec.shared_intermediate_size > 0),
        NORMALIZE=int(spec.normalize_top_k),
        ROUTER_ROWS=ROUTER_ROWS,
    )
