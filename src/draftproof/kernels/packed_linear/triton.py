"""Triton for any number of rows, on every GPU."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from draftproof.kernels.dependent_launch import has_dependent_launch
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_linear.reference import side_by_side
from draftproof.kernels.packed_linear.triton_kernels import multiply, prepare_rows
from draftproof.kernels.packed_weights.formats import (
    CHUNK_COLUMNS,
    SCALE_COLUMNS,
    TILE_ROWS,
    PackedMatrix,
    WeightFormat,
)
from draftproof.kernels.packed_weights.triton import FORMAT_CODES, scale_kind

PROGRAMS = 128
"""About as many as a large GPU has multiprocessors: with fewer, inputs are split."""
MOST_PARTS = 8
FEWEST_STEPS = 4
"""Of a part."""
SHARED_BYTES = 200_000
"""For the stages of one program."""


@dataclass(frozen=True)
class Plan:
    """How the kernel cuts the work.

    Attributes:
        outputs: of a program; a multiple of 16.
        rows: of a program; a power of two, at least 16.
        inputs: of a step; a power of two.
        parts: into which the inputs are split.
        warps: of a program.
        stages: steps whose loads are in flight.
        fused: whether the norm's weight is multiplied in by every program, instead of once beforehand.
    """

    outputs: int
    rows: int
    inputs: int
    parts: int
    warps: int
    stages: int
    fused: bool = False


def choose_plan(matrix: PackedMatrix, rows: int) -> Plan:
    """The plan for a matrix and a number of rows, from measurements on an H200."""
    row_block = min(256, max(16, triton.next_power_of_2(rows)))
    padded = matrix.blocks.shape[0] * TILE_ROWS
    outputs = 64 if row_block <= 64 or padded < 64 * PROGRAMS else 128
    # FP8's and INT8's scales, and NVFP4's order, belong to 128 inputs.
    inputs = 64 if row_block > 64 and matrix.format is WeightFormat.BF16 else 128
    programs = -(-padded // outputs) * -(-rows // row_block)
    steps = -(-matrix.columns // inputs)
    parts = max(1, min(MOST_PARTS, PROGRAMS // programs, steps // FEWEST_STEPS))
    stages = max(
        2, min(4 if parts > 1 or row_block > 128 else 3, SHARED_BYTES // ((outputs + row_block) * inputs * 2))
    )
    return Plan(outputs, row_block, inputs, parts, 8 if row_block > 64 else 4, stages)


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
    for part, columns in side_by_side(matrix):
        place, before = out, residual
        if matrix.behind is not None:
            place, before = out[:, columns], None if residual is None else residual[:, columns]
        plan = choose_plan(part, x.shape[0])
        multiply_by(plan, x, part, out=place, norm=norm, residual=before, epilogue=epilogue)


def multiply_by(
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
    tiles, chunks = matrix.blocks.shape[:2]
    chunk = CHUNK_COLUMNS[matrix.format]
    early = has_dependent_launch(x)
    factors, norm_kind = x, 0 if norm is None else 2
    fused = plan.fused and plan.parts == 1 and matrix.format is not WeightFormat.NVFP4
    if matrix.format is WeightFormat.NVFP4 or (norm is not None and not fused):
        x, factors = _prepared(x, matrix, norm, chunks * chunk, early)
        norm_kind = min(norm_kind, 1)
    column_blocks, row_blocks = -(-tiles * TILE_ROWS // plan.outputs), -(-rows // plan.rows)
    parts = arrivals = factors
    if plan.parts > 1:
        groups = column_blocks * row_blocks
        size = groups * plan.parts * plan.outputs * plan.rows
        parts = torch.empty(size, dtype=torch.float32, device=out.device)
        arrivals = _arrivals(out.device, triton.next_power_of_2(groups))
    multiply[(row_blocks, column_blocks, plan.parts)](
        x, out if norm is None else norm.weight, factors, matrix.blocks, _or(matrix.row_scale, out),
        _or(matrix.block_scale, out), _or(matrix.bias, out), _or(residual, out), out, parts, arrivals, rows,
        out.shape[1], x.stride(0), 0 if residual is None else residual.stride(0), out.stride(0),
        -(-(matrix.rows // 2) // SCALE_COLUMNS), 0.0 if norm is None else norm.epsilon,
        K=x.shape[1], TILES=tiles, CHUNKS=chunks, CHUNK=chunk, GROUPS=-(-matrix.columns // SCALE_COLUMNS),
        BN=plan.outputs, BR=plan.rows, BK=plan.inputs, SPLIT=plan.parts, FORMAT=FORMAT_CODES[matrix.format],
        SCALE=scale_kind(matrix), NORM=norm_kind, ROW_SCALE=matrix.row_scale is not None,
        BIAS=matrix.bias is not None, RESIDUAL=residual is not None,
        PAIRS=epilogue is Epilogue.SILU_PAIRS, WIDE=out.dtype is torch.float32, PDL=early,
        THREADS=32 * plan.warps, num_warps=plan.warps, num_stages=plan.stages, launch_pdl=early,
    )  # fmt: skip


def _prepared(
    x: Tensor, matrix: PackedMatrix, norm: NormScale | None, padded: int, early: bool
) -> tuple[Tensor, Tensor]:
    """Rows as the product wants them, and their factors."""
    rows = x.shape[0]
    prepared = torch.empty(rows, padded, dtype=torch.bfloat16, device=x.device)
    factors = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(padded)
    prepare_rows[(rows,)](
        x, x.stride(0), factors if norm is None else norm.weight, prepared, factors,
        0.0 if norm is None else norm.epsilon, K=matrix.columns, PADDED=padded, BLOCK=block,
        FORMAT=FORMAT_CODES[matrix.format], NORM=norm is not None, PDL=early,
        num_warps=8 if block > 2048 else 4, launch_pdl=early,
    )  # fmt: skip
    return prepared, factors


@functools.cache
def _arrivals(device: torch.device, room: int) -> Tensor:
    """Counters of parts that are done; every launch leaves zeros behind."""
    return torch.zeros(room, dtype=torch.int32, device=device)


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """A kernel wants a pointer even where it does not read."""
    return other if tensor is None else tensor
