"""CUDA C++ for 17 to 256 rows, on compute capability 9.0: products of warpgroups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.compiler import is_available
from draftproof.kernels.cuda.launch import Kernel, load_kernel
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_weights.formats import BLOCK_BYTES, CHUNK_COLUMNS, PackedMatrix, WeightFormat

SOURCE = Path(__file__).with_name("many_rows.cu")
FORMAT_CODES = {WeightFormat.BF16: 0, WeightFormat.FP8: 1, WeightFormat.NVFP4: 3}
UNIT_COLUMNS = 128
WARPS = 8
BLOCK_TILES = 8
CAPABILITY = 9
MOST_ROWS = 256
FEWEST_ROWS = 32
"""Of a product; fewer are padded."""
MOST_PARTS = 8
BLOCKS_WANTED = 120
SHARED_BYTES = 200 * 1024
SUM_STRIDE = 132


@dataclass(frozen=True)
class ManyRowsPlan:
    """How the kernel cuts the work; see `many_rows.cu`.

    Attributes:
        rows: of the products, a power of two from 32 to 256.
        stages: units in flight of a warp.
        x_stages: units of x in flight.
        parts: into which the inputs are divided; a power of two.
        resident: blocks on a multiprocessor.
    """

    rows: int
    stages: int
    x_stages: int
    parts: int
    resident: int = 1


def choose_plan(matrix: PackedMatrix, rows: int) -> ManyRowsPlan:
    """The plan for a matrix and a number of rows."""
    padded = FEWEST_ROWS
    while padded < rows:
        padded *= 2
    units = -(-matrix.columns // UNIT_COLUMNS)
    blocks = -(-matrix.blocks.shape[0] // BLOCK_TILES)
    parts = 1
    while parts < MOST_PARTS and blocks * parts < BLOCKS_WANTED and units >= 4 * parts:
        parts *= 2
    x_stages = 3 if padded <= 64 else 2
    left = SHARED_BYTES - x_stages * padded * UNIT_COLUMNS * 2
    return ManyRowsPlan(padded, max(2, min(6, left // (WARPS * unit_bytes(matrix.format)))), x_stages, parts)


def unit_bytes(kept_as: WeightFormat) -> int:
    """Bytes of 128 inputs of a tile."""
    return UNIT_COLUMNS // CHUNK_COLUMNS[kept_as] * BLOCK_BYTES[kept_as]


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
    if not x.is_cuda or torch.cuda.get_device_capability(x.device)[0] != CAPABILITY:
        return "products of warpgroups need compute capability 9.0"
    if not is_available():
        return "cuda-bindings or NVRTC is missing"
    if x.shape[0] > MOST_ROWS:
        return f"{x.shape[0]} rows, at most {MOST_ROWS}"
    if matrix.format not in FORMAT_CODES or matrix.block_scale is not None:
        return f"{matrix.format.value} with a scale for 128 inputs"
    if matrix.columns % 2 or x.stride(0) % 2:
        return "rows of x are no multiples of 4 bytes"
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
    multiply_many(plan, x, matrix, out=out, norm=norm, residual=residual, epilogue=epilogue)


def multiply_many(
    plan: ManyRowsPlan,
    x: Tensor,
    matrix: PackedMatrix,
    *,
    out: Tensor,
    norm: NormScale | None = None,
    residual: Tensor | None = None,
    epilogue: Epilogue = Epilogue.NONE,
) -> None:
    """`packed_linear` for many rows by a given plan."""
    rows, tiles = x.shape[0], matrix.blocks.shape[0]
    units = -(-matrix.columns // UNIT_COLUMNS)
    prepared = torch.empty(units, plan.rows, UNIT_COLUMNS, dtype=torch.bfloat16, device=x.device)
    factors = torch.empty(plan.rows, dtype=torch.float32, device=x.device)
    scale, epsilon = (None, 0.0) if norm is None else (norm.weight, norm.epsilon)
    prepare = _kernel("prepare_rows", plan, matrix, out, norm, residual, epilogue)
    prepare.launch((plan.rows,), 256, (x, x.stride(0), scale, epsilon, prepared, factors, rows))
    kernel = _kernel("many_rows", plan, matrix, out, norm, residual, epilogue)
    rings = plan.x_stages * plan.rows * UNIT_COLUMNS * 2
    rings += WARPS * plan.stages * unit_bytes(matrix.format)
    kernel.launch(
        (-(-tiles // BLOCK_TILES) * plan.parts,),
        WARPS * 32,
        (
            prepared,
            factors,
            matrix.blocks,
            matrix.row_scale,
            matrix.bias,
            residual,
            0 if residual is None else residual.stride(0),
            out,
            out.stride(0),
            rows,
            out.shape[1],
            tiles,
        ),
        shared_bytes=max(rings, plan.rows * SUM_STRIDE * 4),
    )


def _kernel(
    function: str,
    plan: ManyRowsPlan,
    matrix: PackedMatrix,
    out: Tensor,
    norm: NormScale | None,
    residual: Tensor | None,
    epilogue: Epilogue,
) -> Kernel:
    return load_kernel(
        SOURCE,
        function,
        out.device,
        FORMAT=FORMAT_CODES[matrix.format],
        K=matrix.columns,
        ROWS=plan.rows,
        STAGES=plan.stages,
        X_STAGES=plan.x_stages,
        PARTS=plan.parts,
        NORM=int(norm is not None),
        PAIRS=int(epilogue is Epilogue.SILU_PAIRS),
        RESIDUAL=int(residual is not None),
        WIDE=int(out.dtype is torch.float32),
        RESIDENT=plan.resident,
    )
