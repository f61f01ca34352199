"""CUDA C++ for up to 16 rows, from compute capability 9.0 on."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.launch import Kernel, load_kernel
from draftproof.kernels.cuda.requirements import missing
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear.epilogue import Epilogue
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
FINISHERS = 1
"""Warps that add up and store, besides those that multiply."""
MULTIPROCESSORS = 132
"""Of the GPU that plans were measured on."""
RING_BYTES = 96 * 1024
"""Weights in flight on one multiprocessor: less than half of its shared memory, so that the next kernel's
ring finds room beside it."""
SMALL_RING_BYTES = 64 * 1024
"""For weights that have to be decoded: more in flight gains nothing."""
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
BLOCK_OF_TWO_BYTES = 48 * 1024
"""For each of two blocks of a multiprocessor."""
MANY_BYTES = 256 * 1024
"""Of a multiprocessor's part of a matrix, from which on it is large."""
MOST_STAGES = 24
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
    is_wide = matrix.format is WeightFormat.BF16
    per_multiprocessor = matrix.blocks.shape[0] * units * size // MULTIPROCESSORS
    is_large = per_multiprocessor > MANY_BYTES
    sets = 2 if rows > 8 else 1
    if units * sets > MOST_UNITS_KEPT:
        warps = min(16 if matrix.format is WeightFormat.NVFP4 else 8, units)
        return Plan(warps, 1, _stages(RING_BYTES, warps * size), group=3 // sets, resident=1)
    least = -(-units * sets // UNITS_OF_A_WARP)
    if not is_large and units >= 32 and units % 16 == 0:
        least = 16
    warps = _even_warps(units, least)
    step = min(2, -(-units // warps))
    # Decoding keeps the warps busy: two blocks hide each other's waits.
    if is_large and not is_wide and sets == 1 and warps == 8:
        step = 2 if matrix.format is WeightFormat.NVFP4 else 1
        return Plan(warps, step, _stages(BLOCK_OF_TWO_BYTES, warps * step * size), blocks=2)
    ring = SMALL_RING_BYTES
    if is_wide:
        ring = (
            HEAD_RING_BYTES
            if per_multiprocessor > HEAD_BYTES
            else LARGE_RING_BYTES
            if is_large
            else RING_BYTES
        )
    if warps == 16:
        step, ring = 1, WIDE_RING_BYTES if is_wide else NARROW_RING_BYTES
    return Plan(
        warps, step, _stages(ring, warps * step * size), resident=2 if warps <= 8 and sets == 1 else 1
    )


def _stages(ring: int, stage: int) -> int:
    return max(1, min(MOST_STAGES, ring // stage))


def _even_warps(units: int, least: int) -> int:
    """Warps that share the units evenly, 8 where that goes, at least `least`; else as many as may be."""
    wanted = [warps for warps in (8, 10, 12, 16, 9, 11, 13, 14, 7, 6, 5, 4, 3, 2, 1) if warps >= least]
    return next((warps for warps in wanted if units % warps == 0 and warps <= units), min(8, units))


def unit_bytes(kept_as: WeightFormat) -> int:
    """Bytes of 128 inputs of a tile, INT8's scales included."""
    scales = 4 * TILE_ROWS if kept_as is WeightFormat.INT8 else 0
    return UNIT_COLUMNS // CHUNK_COLUMNS[kept_as] * BLOCK_BYTES[kept_as] + scales


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
    multiply(plan, x, matrix, out=out, norm=norm, residual=residual, epilogue=epilogue)


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
    tiles = matrix.blocks.shape[0]
    kernel = _kernel(plan, matrix, rows, out, norm is not None, residual is not None, epilogue)
    grid = min(tiles, _multiprocessors(x.device.index or 0) * plan.blocks)
    shared = plan.warps * plan.stages * plan.step * unit_bytes(matrix.format)
    if norm is not None:
        shared += -(-matrix.columns // UNIT_COLUMNS) * UNIT_COLUMNS * 4
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
        ),
        shared_bytes=shared,
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
    )


def _columns(rows: int) -> int:
    """Columns of the products: what holds the rows."""
    return 4 if rows <= 4 else 8 if rows <= 8 else 16


@functools.cache
def _multiprocessors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
