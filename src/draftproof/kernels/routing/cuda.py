"""Routing in CUDA for GPUs from SM90 on, in one launch."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.cuda.launch import Kernel, load_kernel
from draftproof.kernels.cuda.requirements import missing
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import PackedMatrix, WeightFormat
from draftproof.kernels.routing.routing import FEW_ROWS, FewRowsRouting, Routing, RoutingScratch

SOURCE = Path(__file__).with_name("route.cu")
GROUP_ROWS = 16
"""Rows of one thread block."""
FEW_COLUMNS, SOME_COLUMNS, MANY_COLUMNS = 8, 16, 24
"""Of the router's rows, of one thread block: for up to 16 rows, up to `SOME_ROWS`, and more (for which a wide
hidden size leaves no registers)."""
SOME_ROWS = 64
NARROW_HIDDEN, NARROW_INPUTS, NARROW_MULTIPLE = 2048, 4, 512
"""Up to this hidden size: inputs by thread of a thread block, and what the size is a multiple of."""
WIDE_INPUTS, WIDE_MULTIPLE = 8, 1024
"""Beyond it."""
MOST_ROWS = 512
LEAST_HIDDEN, MOST_HIDDEN = 1024, 4096
MOST_EXPERTS, MOST_CHOSEN = 512, 16


def supports_route(
    residual: Tensor,
    norm: NormScale,
    router: PackedMatrix,
    spec: MoeSpec,
    scratch: RoutingScratch,
    routing: Routing,
) -> str | None:
    """Why this call cannot run here, or None."""
    return missing(residual.device) or unsupported_shape(residual.shape[0], residual.shape[1], router, spec)


def unsupported_shape(rows: int, hidden: int, router: PackedMatrix, spec: MoeSpec) -> str | None:
    """The part of `supports_route` that does not ask the GPU."""
    if rows > MOST_ROWS:
        return f"{rows} rows, at most {MOST_ROWS}"
    if router.format is not WeightFormat.BF16:
        return f"the router is {router.format.value}, not bf16"
    multiple = NARROW_MULTIPLE if hidden <= NARROW_HIDDEN else WIDE_MULTIPLE
    if not LEAST_HIDDEN <= hidden <= MOST_HIDDEN or hidden % multiple:
        return f"hidden size {hidden} is no multiple of {multiple} from {LEAST_HIDDEN} to {MOST_HIDDEN}"
    if spec.num_experts > MOST_EXPERTS or spec.experts_per_token > MOST_CHOSEN:
        return f"{spec.experts_per_token} of {spec.num_experts} experts"
    return None


def route(
    residual: Tensor,
    norm: NormScale,
    router: PackedMatrix,
    spec: MoeSpec,
    scratch: RoutingScratch,
    routing: Routing,
) -> None:
    """Choose each row's experts; arguments as in the reference. `chosen` and `weights` are left alone."""
    rows, hidden = residual.shape
    few = isinstance(routing, FewRowsRouting)
    lists: tuple[Tensor | None, ...]
    if isinstance(routing, FewRowsRouting):
        lists = routing.distinct, routing.row_weights, None, None, None
        room = len(routing.row_weights)
    else:
        lists = (
            *(routing.offsets, routing.pair_weights, routing.pair_rows),
            *(routing.pair_places, routing.blocks),
        )
        room = len(routing.blocks) - 1
    arguments = (
        *(residual, norm.weight, router.blocks),
        *(scratch.logits, scratch.logit_words, scratch.choice_words, scratch.launches),
        *(*lists, routing.shared_weight),
        *(rows, residual.stride(0), scratch.logits.stride(0), room, norm.epsilon),
    )
    columns = columns_for(rows, hidden)
    inputs = NARROW_INPUTS if hidden <= NARROW_HIDDEN else WIDE_INPUTS
    grid = -(-router.rows // columns), -(-rows // GROUP_ROWS)
    row_room = hidden * 2 * (FEW_ROWS if few else GROUP_ROWS)
    sort_room = 0 if few else (spec.num_experts * -(-rows // 32) + 1) * 4 + rows * spec.experts_per_token * 8
    kernel = _kernel(hidden, spec, few, columns, residual.device)
    kernel.launch(grid, hidden // inputs, arguments, max(row_room, sort_room))


def columns_for(rows: int, hidden: int) -> int:
    """Router rows of one thread block: the more, the less often rows are read; the fewer, the more blocks."""
    if rows <= GROUP_ROWS:
        return FEW_COLUMNS
    return SOME_COLUMNS if rows <= SOME_ROWS or hidden > NARROW_HIDDEN else MANY_COLUMNS


def _kernel(hidden: int, spec: MoeSpec, few: bool, columns: int, device: torch.device) -> Kernel:
    return load_kernel(
        SOURCE,
        "route",
        device,
        HIDDEN=hidden,
        EXPERTS=spec.num_experts,
        TOP=spec.experts_per_token,
        SHARED=int(spec.shared_intermediate_size > 0),
        NORMALIZE=int(spec.normalize_top_k),
        MANY=int(not few),
        COLUMNS=columns,
    )
