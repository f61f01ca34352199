"""Launch of the experts' CUDA kernel: up to 8 rows on GPUs from compute capability 9.0 on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.launch import Kernel, load_kernel
from draftproof.kernels.experts_step.operands import ExpertsScratch, SharedExpert
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import CHUNK_COLUMNS, PackedExperts, PackedMatrix, WeightFormat
from draftproof.kernels.routing.routing import FewRowsRouting, Routing

SOURCE = Path(__file__).with_name("experts_step.cu")
FORMATS = {WeightFormat.BF16: 0, WeightFormat.FP8: 1, WeightFormat.NVFP4: 2}
NO_SHARED = 3
WARP_ROWS = (4, 8)
"""Rows for which there is a kernel; a call takes the smallest that holds its own."""
INTERMEDIATES = (512, 1024)
TILE_FEATURES = 8
"""Activations of a tile of gate_up; every block needs a tile."""
MOST_PER_TOKEN = 10
"""Experts of a row that the kernel's tables have room for."""
GROUP_THREADS = 128
SHARED_MEMORY_BYTES = 232448
"""Of a block, on compute capability 9.0 and 10.0."""


@dataclass(frozen=True)
class Plan:
    """Geometry of a launch.

    Attributes:
        groups: of four warps; each has a ring of its own.
        stages: of a ring.
    """

    groups: int = 4
    stages: int = 2


def supports(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: Routing,
    scratch: ExpertsScratch,
) -> str | None:
    """Why a call is not for this kernel, or None; arguments as in the reference."""
    if residual.device.type != "cuda" or torch.cuda.get_device_capability(residual.device) < (9, 0):
        return "needs compute capability 9.0"
    reason = unsupported_shape(residual.shape[0], experts, shared, routing)
    if reason is None and isinstance(routing, FewRowsRouting):
        tiles = len(routing.row_weights) // residual.shape[0] * experts.intermediate // TILE_FEATURES
        if tiles < multiprocessors(residual.device):
            return f"{tiles} tiles of activations for {multiprocessors(residual.device)} multiprocessors"
    return reason


def unsupported_shape(
    rows: int, experts: PackedExperts, shared: SharedExpert | None, routing: Routing
) -> str | None:
    """The part of `supports` that does not ask the GPU."""
    if rows > WARP_ROWS[-1] or not isinstance(routing, FewRowsRouting):
        return f"{rows} rows, at most {WARP_ROWS[-1]}"
    per_token = len(routing.row_weights) // rows
    if len(routing.row_weights) > MOST_PER_TOKEN * next(size for size in WARP_ROWS if rows <= size):
        return f"{per_token} experts per token, at most {MOST_PER_TOKEN}"
    if experts.format not in FORMATS:
        return f"{experts.format.value} experts"
    if experts.intermediate not in INTERMEDIATES:
        return f"intermediate width {experts.intermediate}"
    formats = [experts.format]
    if shared is not None:
        formats.append(shared.gate_up.format)
        if shared.gate_up.format is not shared.down.format or formats[1] not in FORMATS:
            return f"shared expert in {shared.gate_up.format.value} and {shared.down.format.value}"
        if formats[1] is not formats[0] and formats[0] is not WeightFormat.NVFP4:
            return f"shared expert in {formats[1].value} beside {formats[0].value} experts"
        if shared.intermediate != experts.intermediate:
            return f"shared expert of width {shared.intermediate}"
    for kept_as in formats:
        blocks = experts.hidden // CHUNK_COLUMNS[kept_as]
        if experts.hidden % CHUNK_COLUMNS[kept_as] or (blocks % 16 and blocks % 12):
            return f"hidden width {experts.hidden}"
    return None


def experts_step(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: Routing,
    scratch: ExpertsScratch,
) -> None:
    """As in the reference."""
    assert isinstance(routing, FewRowsRouting)
    launch(residual, norm, experts, shared, routing, scratch, Plan())


def launch(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: FewRowsRouting,
    scratch: ExpertsScratch,
    plan: Plan,
) -> None:
    """The same with a geometry of choice."""
    rows = residual.shape[0]
    kernel = _kernel(experts, shared, rows, plan)
    none = (None, None, None)
    kernel.launch(
        (multiprocessors(residual.device),),
        plan.groups * GROUP_THREADS,
        (
            *(residual, norm.weight, norm.epsilon, rows, len(routing.row_weights)),
            *(experts.gate_up, experts.gate_up_scale, experts.gate_up_block_scale),
            *(experts.down, experts.down_scale, experts.down_block_scale),
            *(none if shared is None else _parts(shared.gate_up)),
            *(none if shared is None else _parts(shared.down)),
            *(routing.distinct, routing.row_weights, routing.shared_weight),
            *(scratch.exchange, scratch.launches),
        ),
        dynamic_shared_bytes(experts, shared, plan),
    )


def dynamic_shared_bytes(experts: PackedExperts, shared: SharedExpert | None, plan: Plan) -> int:
    """Of a block: the rings, and the rows as right operands."""
    narrow = WeightFormat.NVFP4 in (experts.format, None if shared is None else shared.gate_up.format)
    return plan.groups * plan.stages * 16 * (1152 if narrow else 1024) + experts.hidden * 16


@cache
def multiprocessors(device: torch.device) -> int:
    """How many blocks are resident at one a multiprocessor."""
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


def _kernel(experts: PackedExperts, shared: SharedExpert | None, rows: int, plan: Plan) -> Kernel:
    return load_kernel(
        SOURCE,
        "experts_step",
        experts.gate_up.device,
        HIDDEN=experts.hidden,
        INTERMEDIATE=experts.intermediate,
        FORMAT=FORMATS[experts.format],
        SHARED_FORMAT=NO_SHARED if shared is None else FORMATS[shared.gate_up.format],
        BLOCK_SCALED=int(experts.gate_up_block_scale is not None),
        SHARED_BLOCK_SCALED=int(shared is not None and shared.gate_up.block_scale is not None),
        ROWS=next(size for size in WARP_ROWS if rows <= size),
        GROUPS=plan.groups,
        STAGES=plan.stages,
    )


def _parts(matrix: PackedMatrix) -> tuple[Tensor, Tensor | None, Tensor | None]:
    return matrix.blocks, matrix.row_scale, matrix.block_scale
