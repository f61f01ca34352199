"""CUDA C++ for up to 16 rows, from compute capability 9.0 on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.launch import Kernel, load_kernel, multiprocessors
from draftproof.kernels.cuda.requirements import missing
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_linear.reference import side_by_side
from draftproof.kernels.packed_weights.formats import (
    BLOCK_BYTES,
    CHUNK_COLUMNS,
    TILE_ROWS,
    PackedMatrix,
    WeightFormat,
)

SOURCE = Path(__file__).with_name("packed_linear.cu")
FORMAT_CODES = {WeightFormat.BF16: 0, WeightFormat.FP8: 1, WeightFormat.INT8: 2, WeightFormat.NVFP4: 3}
UNIT_COLUMNS = 128
MOST_ROWS = 16
SHARED_LAUNCH_ROWS = 8
"""Most rows for which a launch makes the outputs of two matrices: more do not fit in the registers."""
FINISHERS = 1
"""Warps that add up and store, besides those that multiply."""
MULTIPROCESSORS = 132
"""Of the GPU that plans were measured on."""
RING_BYTES = 96 * 1024
"""Weights in flight on one multiprocessor: less than half of its shared memory, so that the next kernel's
ring finds room beside it."""
SMALL_RING_BYTES = 64 * 1024
"""For INT8 and NVFP4, which have to be decoded: more in flight gains nothing."""
LARGE_RING_BYTES = 128 * 1024
"""For larger matrices. In a chain of its own kind 192 KiB are 5 % faster; in a step, behind the experts, 128
are, by 2.4 us a layer."""
HEAD_RING_BYTES = 192 * 1024
"""For matrices that take so long that the next kernel's start does not matter."""
HEAD_BYTES = 768 * 1024
"""Of a multiprocessor's part of such a matrix."""
WIDE_RING_BYTES = 128 * 1024
"""For 16 warps and BF16."""
NARROW_RING_BYTES = 48 * 1024
"""For 16 warps and weights that have to be decoded."""
HALVES_RING_BYTES = 64 * 1024
"""For 16 warps and FP8, whose decode is short: a whole tile of 4096 inputs."""
BLOCK_OF_TWO_BYTES = 48 * 1024
"""For each of two blocks of a multiprocessor."""
MANY_BYTES = 256 * 1024
"""Of a multiprocessor's part of a matrix, from which on it is large."""
MOST_STAGES = 24
SUM_STRIDE = 20
"""Floats of a column of sums."""
SHARED_OF_A_BLOCK = 222 * 1024
"""Less what the kernel has besides."""
UNITS_OF_A_WARP = 4
"""Whose inputs fit in a warp's registers, 8 rows of them."""
MOST_UNITS_KEPT = 64
"""Whose inputs fit in the registers of all warps."""


@dataclass(frozen=True)
class Plan:
    """How the kernel cuts the work; see `packed_linear.cu`.

    Attributes:
        warps: of a block.
        step: units of 128 inputs that a warp fetches at a time.
        stages: fetches in flight of a warp.
        group: tiles that share a pass over x, which is then read again for every group; 0 keeps a warp's part
            of x in its registers.
        blocks: launched for each multiprocessor.
        resident: blocks whose registers fit on a multiprocessor, the next kernel's included.
        release: 0 lets the next kernel start at once, 1 when x has been asked for.
    """

    warps: int
    step: int
    stages: int
    group: int = 0
    blocks: int = 1
    resident: int = 2
    release: int = 1


def choose_plan(matrix: PackedMatrix, rows: int) -> Plan:
    """The plan for a matrix and a number of rows, from measurements on an H200 (`measure.py`)."""
    units = -(-matrix.columns // UNIT_COLUMNS)
    size = unit_bytes(matrix.format)
    plan, ring = _cut(matrix, units, size, 2 if rows > 8 else 1)
    room = SHARED_OF_A_BLOCK // plan.blocks - _besides_rings(plan, matrix, rows, has_norm=True)
    stages = min(ring, room) // (plan.warps * plan.step * size)
    return replace(plan, stages=max(1, min(MOST_STAGES, stages)))


def _cut(matrix: PackedMatrix, units: int, size: int, sets: int) -> tuple[Plan, int]:
    """A plan with one stage, and the bytes that its stages should have."""
    is_bf16, is_nvfp4 = matrix.format is WeightFormat.BF16, matrix.format is WeightFormat.NVFP4
    is_fp8 = matrix.format is WeightFormat.FP8
    per_multiprocessor = matrix.blocks.shape[0] * units * size // MULTIPROCESSORS
    is_large = per_multiprocessor > MANY_BYTES
    if units * sets > MOST_UNITS_KEPT:
        return Plan(min(16 if is_nvfp4 else 8, units), 1, 1, group=3 // sets, resident=1), RING_BYTES
    least = -(-units * sets // UNITS_OF_A_WARP)
    if not is_large and units >= 32 and units % 16 == 0:
        least = 16
    warps = _even_warps(units, least)
    if warps == 16:
        narrow = HALVES_RING_BYTES if is_fp8 else NARROW_RING_BYTES
        return Plan(warps, 1, 1, resident=1), WIDE_RING_BYTES if is_bf16 else narrow
    step = min(2, -(-units // warps))
    # Decoding keeps the warps busy: two blocks hide each other's waits.
    if is_large and not is_bf16 and sets == 1 and warps == 8 and matrix.behind is None:
        return Plan(warps, step if is_nvfp4 else 1, 1, blocks=2), BLOCK_OF_TWO_BYTES
    ring = RING_BYTES if is_fp8 else SMALL_RING_BYTES
    if is_bf16:
        ring = LARGE_RING_BYTES if is_large else RING_BYTES
        ring = HEAD_RING_BYTES if per_multiprocessor > HEAD_BYTES else ring
    # FP8 beside BF16 needs more registers than two blocks would have.
    are_two = warps <= 8 and sets == 1 and not is_fp8
    return Plan(warps, step, 1, resident=2 if are_two else 1), ring


def _even_warps(units: int, least: int) -> int:
    """Warps that share the units evenly, 8 where that goes, at least `least`; else as many as may be."""
    wanted = [warps for warps in (8, 10, 12, 16, 9, 11, 13, 14, 7, 6, 5, 4, 3, 2, 1) if warps >= least]
    return next((warps for warps in wanted if units % warps == 0 and warps <= units), min(8, units))


def unit_bytes(kept_as: WeightFormat) -> int:
    """Bytes of 128 inputs of a tile, INT8's scales included."""
    scales = 4 * TILE_ROWS if kept_as is WeightFormat.INT8 else 0
    return UNIT_COLUMNS // CHUNK_COLUMNS[kept_as] * BLOCK_BYTES[kept_as] + scales


def shared_bytes(plan: Plan, matrix: PackedMatrix, rows: int, has_norm: bool) -> int:
    """Of a block: the rings, the norm's weight, the sums."""
    rings = plan.warps * plan.stages * plan.step * unit_bytes(matrix.format)
    return rings + _besides_rings(plan, matrix, rows, has_norm)


def _besides_rings(plan: Plan, matrix: PackedMatrix, rows: int, has_norm: bool) -> int:
    norms = -(-matrix.columns // UNIT_COLUMNS) * UNIT_COLUMNS * 4 if has_norm else 0
    columns = max(8, _columns(rows))
    return norms + 2 * max(1, plan.group) * plan.warps * columns * SUM_STRIDE * 4


def supports(
    x: Tensor,
    matrix: PackedMatrix,
    *,
    out: Tensor,
    norm: NormScale | None = None,
    residual: Tensor | None = None,
    epilogue: Epilogue = Epilogue.NONE,
) -> str | None:
    """Why this call cannot run here, or None."""
    if reason := missing(x.device):
        return reason
    if x.shape[0] > MOST_ROWS:
        return f"{x.shape[0]} rows, at most {MOST_ROWS}"
    if matrix.columns % 8 or x.stride(0) % 8 or x.data_ptr() % 16:
        return "rows of x are no multiples of 16 bytes"
    return None


def packed_linear(
    x: Tensor,
    matrix: PackedMatrix,
    *,
    out: Tensor,
    norm: NormScale | None = None,
    residual: Tensor | None = None,
    epilogue: Epilogue = Epilogue.NONE,
) -> None:
    """out = residual + epilogue(RMSNorm(x) W^T + bias); arguments as in the reference."""
    plan = choose_plan(matrix, x.shape[0])
    if matrix.behind is None or (residual is None and shares_launch(plan, matrix, x.shape[0])):
        multiply(plan, x, matrix, out=out, norm=norm, residual=residual, epilogue=epilogue)
        return
    for part, columns in side_by_side(matrix):
        before = None if residual is None else residual[:, columns]
        packed_linear(x, part, out=out[:, columns], norm=norm, residual=before, epilogue=epilogue)


def shares_launch(plan: Plan, matrix: PackedMatrix, rows: int) -> bool:
    """Whether one launch makes the outputs of a matrix and of the one behind it: BF16 behind FP8, in tiles of
    8 rows, which have as many bytes as FP8's of 16."""
    behind = matrix.behind
    return (
        behind is not None
        and behind.behind is None
        and rows <= SHARED_LAUNCH_ROWS
        and (matrix.format, behind.format) == (WeightFormat.FP8, WeightFormat.BF16)
        and plan.group == 0
        and matrix.rows % TILE_ROWS == 0
        and matrix.columns % UNIT_COLUMNS == 0
        and not matrix.paired
        and matrix.bias is None
        and behind.bias is None
        and behind.row_scale is None
    )


def multiply(
    plan: Plan,
    x: Tensor,
    matrix: PackedMatrix,
    *,
    out: Tensor,
    norm: NormScale | None = None,
    residual: Tensor | None = None,
    epilogue: Epilogue = Epilogue.NONE,
) -> None:
    """`packed_linear` by a given plan."""
    rows = x.shape[0]
    main_tiles = matrix.blocks.shape[0]
    tiles = main_tiles + (0 if matrix.behind is None else matrix.behind.blocks.shape[0] * 2)
    kernel = _kernel(plan, matrix, rows, out, norm is not None, residual is not None, epilogue)
    grid = min(tiles, multiprocessors(x.device) * plan.blocks)
    kernel.launch(
        (grid,),
        (plan.warps + FINISHERS) * 32,
        (
            x,
            x.stride(0),
            None if norm is None else norm.weight,
            0.0 if norm is None else norm.epsilon,
            matrix.blocks,
            matrix.row_scale,
            matrix.block_scale,
            -(-(matrix.rows // 2) // UNIT_COLUMNS),
            matrix.bias,
            residual,
            0 if residual is None else residual.stride(0),
            out,
            out.stride(0),
            rows,
            out.shape[1],
            tiles,
            None if matrix.behind is None else matrix.behind.blocks,
            main_tiles,
            matrix.rows,
        ),
        shared_bytes=shared_bytes(plan, matrix, rows, norm is not None),
    )


def _kernel(
    plan: Plan,
    matrix: PackedMatrix,
    rows: int,
    out: Tensor,
    has_norm: bool,
    has_residual: bool,
    epilogue: Epilogue,
) -> Kernel:
    block_scale = 0
    if matrix.format is WeightFormat.FP8 and matrix.block_scale is not None:
        block_scale = 2 if matrix.paired else 1
    return load_kernel(
        SOURCE,
        "packed_linear",
        out.device,
        FORMAT=FORMAT_CODES[matrix.format],
        K=matrix.columns,
        WARPS=plan.warps,
        STEP=plan.step,
        STAGES=plan.stages,
        COLUMNS=_columns(rows),
        NORM=int(has_norm),
        BLOCK_SCALE=block_scale,
        PAIRS=int(epilogue is Epilogue.SILU_PAIRS),
        RESIDUAL=int(has_residual),
        WIDE=int(out.dtype is torch.float32),
        GROUP=plan.group,
        RESIDENT=plan.resident,
        RELEASE=plan.release,
        BEHIND=int(matrix.behind is not None),
    )


def _columns(rows: int) -> int:
    """Columns of the products: what holds the rows."""
    return 4 if rows <= 4 else 8 if rows <= 8 else 16
