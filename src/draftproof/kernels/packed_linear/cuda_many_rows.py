"""CUDA C++ for 17 to 128 rows, on compute capability 9.0: products of warpgroups.

No tuning table chooses it. Its first form, which streamed x beside the weights, was exact on an H200; beside
Triton's, 64 rows of 12352 x 2048 took 24.8 us against 18.3 in BF16 and 20.7 against 25.2 in FP8. This form,
which keeps x in shared memory, compiles and has not run on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.launch import Kernel, load_kernel
from draftproof.kernels.cuda.requirements import missing
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_weights.formats import BLOCK_BYTES, CHUNK_COLUMNS, PackedMatrix, WeightFormat

SOURCE = Path(__file__).with_name("many_rows.cu")
FORMAT_CODES = {WeightFormat.BF16: 0, WeightFormat.FP8: 1, WeightFormat.NVFP4: 3}
UNIT_COLUMNS = 128
WARPS = 8
MULTIPROCESSORS = 132
"""Of the GPU that plans were measured on."""
CAPABILITY = 9
MOST_ROWS = 128
FEWEST_ROWS = 32
"""Of a product; fewer are padded."""
MOST_PARTS = 8
X_BYTES_WANTED = 64 * 1024
"""Of a block, at most where 8 parts can do it."""
SHARED_BYTES = 220 * 1024
MOST_STAGES = 8
SUM_STRIDE = 132


@dataclass(frozen=True)
class ManyRowsPlan:
    """How the kernel cuts the work; see `many_rows.cu`.

    Attributes:
        rows: of the products, a power of two from 32 to 128.
        stages: units in flight of a warp.
        parts: into which the inputs are divided; a power of two.
    """

    rows: int
    stages: int
    parts: int


def choose_plan(matrix: PackedMatrix, rows: int) -> ManyRowsPlan | None:
    """The plan for a matrix and a number of rows; None where x finds no room."""
    padded = FEWEST_ROWS
    while padded < rows:
        padded *= 2
    units = -(-matrix.columns // UNIT_COLUMNS)
    parts = 1
    while parts < MOST_PARTS and -(-units // parts) * x_bytes(padded) > X_BYTES_WANTED and units > parts:
        parts *= 2
    left = SHARED_BYTES - -(-units // parts) * x_bytes(padded) - sums_bytes(padded)
    stages = min(MOST_STAGES, left // (WARPS * unit_bytes(matrix.format)))
    return ManyRowsPlan(padded, stages, parts) if stages >= 2 else None


def x_bytes(rows: int) -> int:
    """Of one unit of x."""
    return rows * UNIT_COLUMNS * 2


def sums_bytes(rows: int) -> int:
    """Of the sums of two turns, of one where there are many rows."""
    return (1 if rows > 64 else 2) * rows * SUM_STRIDE * 4


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
    if reason := missing(x.device):
        return reason
    if torch.cuda.get_device_capability(x.device)[0] != CAPABILITY:
        return "products of warpgroups are those of compute capability 9.0"
    if x.shape[0] > MOST_ROWS:
        return f"{x.shape[0]} rows, at most {MOST_ROWS}"
    if matrix.format not in FORMAT_CODES or matrix.block_scale is not None:
        return f"{matrix.format.value} with a scale for 128 inputs"
    if choose_plan(matrix, x.shape[0]) is None:
        return f"{x.shape[0]} rows of {matrix.columns} find no room in shared memory"
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
    assert plan is not None, "what `supports` refuses"
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
    shared = -(-units // plan.parts) * x_bytes(plan.rows) + sums_bytes(plan.rows)
    clusters = min(-(-tiles // WARPS), MULTIPROCESSORS // plan.parts)
    kernel.launch(
        (clusters * plan.parts,),
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
        shared_bytes=shared + WARPS * plan.stages * unit_bytes(matrix.format),
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
        PARTS=plan.parts,
        NORM=int(norm is not None),
        PAIRS=int(epilogue is Epilogue.SILU_PAIRS),
        RESIDUAL=int(residual is not None),
        WIDE=int(out.dtype is torch.float32),
    )
