"""Launch of the experts' CUDA kernel: up to 8 rows on GPUs from compute capability 9.0 on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from draftproof.kernels.cuda.launch import Kernel, load_kernel, multiprocessors
from draftproof.kernels.cuda.requirements import missing
from draftproof.kernels.experts_step.operands import ExpertsScratch, SharedExpert
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import (
    BLOCK_BYTES,
    CHUNK_COLUMNS,
    TILE_ROWS,
    PackedExperts,
    PackedMatrix,
    WeightFormat,
)
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
OTHER_THREADS = 128
"""The warps that fill the rings, finish tiles and fetch activations."""
GROUPS = (4, 3, 2)
STAGES = 2
"""Deeper rings are no faster: small loads queue behind the weights that are asked for."""
ROW_PADDING = {WeightFormat.BF16: 64, WeightFormat.FP8: 16, WeightFormat.NVFP4: 32}
ZERO_BYTES = 640
SCALE_BYTES = 128
"""Of a stage, behind its weights."""
BLOCKS_OF_STAGE = {WeightFormat.BF16: 16, WeightFormat.FP8: 8, WeightFormat.NVFP4: 8}
SPARE_MULTIPROCESSORS = 4
"""That get no block: one of them still runs the routing's last block when the others begin here, and every
block has to wait for the slowest one's activations."""
SHARED_MEMORY_BYTES = 232448
"""Of a block, on compute capability 9.0 and 10.0."""
TABLE_BYTES = 4096
"""Static shared memory besides the sums, at most."""


@dataclass(frozen=True)
class Plan:
    """Geometry of a launch.

    Attributes:
        groups: of four warps.
        stages: of each group's ring.
    """

    groups: int
    stages: int


def plan_of(experts: PackedExperts, shared: SharedExpert | None, rows: int) -> Plan | None:
    """The geometry with the most warps that fits into shared memory, or None."""
    for groups in GROUPS:
        if stages_that_fit(experts, shared, rows, groups) >= STAGES:
            return Plan(groups, STAGES)
    return None


def supports(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: Routing,
    scratch: ExpertsScratch,
) -> str | None:
    """Why a call is not for this kernel, or None; arguments as in the reference."""
    reason = missing(residual.device) or unsupported_shape(residual.shape[0], experts, shared, routing)
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
    if len(routing.row_weights) > MOST_PER_TOKEN * warp_rows(rows):
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
        if experts.hidden % (CHUNK_COLUMNS[kept_as] * BLOCKS_OF_STAGE[kept_as]):
            return f"hidden width {experts.hidden}"
    if plan_of(experts, shared, rows) is None:
        return f"no shared memory for {rows} rows of width {experts.hidden} and {experts.intermediate}"
    return None


def experts_step(
    residual: Tensor,
    norm: NormScale,
    experts: PackedExperts,
    shared: SharedExpert | None,
    routing: Routing,
    scratch: ExpertsScratch,
) -> None:
    """As in the reference. `residual` must have been written before the kernel that is launched right ahead
    of this one: it is read while that one still runs."""
    assert isinstance(routing, FewRowsRouting)
    plan = plan_of(experts, shared, residual.shape[0])
    assert plan is not None
    launch(residual, norm, experts, shared, routing, scratch, plan)


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
        (multiprocessors(residual.device) - SPARE_MULTIPROCESSORS,),
        plan.groups * GROUP_THREADS + OTHER_THREADS,
        (
            *(residual, norm.weight, norm.epsilon, rows, len(routing.row_weights)),
            *(experts.gate_up, experts.gate_up_scale, experts.gate_up_block_scale),
            *(experts.down, experts.down_scale, experts.down_block_scale),
            *(none if shared is None else _parts(shared.gate_up)),
            *(none if shared is None else _parts(shared.down)),
            *(routing.distinct, routing.row_weights, routing.shared_weight),
            *(scratch.exchange, scratch.launches),
        ),
        dynamic_shared_bytes(experts, shared, rows, plan),
    )


def stages_that_fit(experts: PackedExperts, shared: SharedExpert | None, rows: int, groups: int) -> int:
    """Most stages of each ring."""
    sums = groups * 2 * 4 * TILE_ROWS * warp_rows(rows) * 4
    room = SHARED_MEMORY_BYTES - sums - TABLE_BYTES - _activation_bytes(experts, rows)
    return room // (groups * _stage_bytes(experts, shared))


def dynamic_shared_bytes(experts: PackedExperts, shared: SharedExpert | None, rows: int, plan: Plan) -> int:
    """Of a block: the rings, the normed rows, and the activations of all pairs of an expert and a row."""
    return plan.groups * plan.stages * _stage_bytes(experts, shared) + _activation_bytes(experts, rows)


def warp_rows(rows: int) -> int:
    """Rows of the kernel that takes `rows` rows."""
    return next(size for size in WARP_ROWS if rows <= size)


def _activation_bytes(experts: PackedExperts, rows: int) -> int:
    padding, most = ROW_PADDING[experts.format], warp_rows(rows)
    normed = most * (experts.hidden * 2 + padding)
    return normed + most * (MOST_PER_TOKEN + 1) * (experts.intermediate * 2 + padding) + ZERO_BYTES


def _stage_bytes(experts: PackedExperts, shared: SharedExpert | None) -> int:
    formats = {experts.format} | (set() if shared is None else {shared.gate_up.format})
    return max(BLOCKS_OF_STAGE[each] * BLOCK_BYTES[each] for each in formats) + SCALE_BYTES


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
        ROWS=warp_rows(rows),
        GROUPS=plan.groups,
        STAGES=plan.stages,
    )


def _parts(matrix: PackedMatrix) -> tuple[Tensor, Tensor | None, Tensor | None]:
    return matrix.blocks, matrix.row_scale, matrix.block_scale
