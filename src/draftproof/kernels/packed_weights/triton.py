"""Unpacking in Triton, at the speed of memory: prompts on a GPU multiply by real numbers."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from draftproof.kernels.packed_weights.formats import (
    CHUNK_COLUMNS,
    SCALE_COLUMNS,
    TILE_ROWS,
    PackedMatrix,
    WeightFormat,
)
from draftproof.kernels.packed_weights.triton_kernels import list_places, unpack_block

FORMAT_CODES = {WeightFormat.BF16: 0, WeightFormat.FP8: 1, WeightFormat.NVFP4: 2, WeightFormat.INT8: 3}
ROWS = 32


def unpack(matrix: PackedMatrix, dtype: torch.dtype) -> Tensor:
    """The real numbers; arguments and result as in `unpacking.unpack`, BF16 or float32."""
    tiles, chunks = matrix.blocks.shape[:2]
    out = torch.empty(matrix.rows, matrix.columns, dtype=dtype, device=matrix.blocks.device)
    grid = (-(-tiles * TILE_ROWS // ROWS), -(-matrix.columns // SCALE_COLUMNS))
    unpack_block[grid](
        matrix.blocks, out if matrix.row_scale is None else matrix.row_scale,
        out if matrix.block_scale is None else matrix.block_scale, _order(out.device), out, matrix.rows,
        -(-(matrix.rows // 2) // SCALE_COLUMNS),
        K=matrix.columns, TILES=tiles, CHUNKS=chunks, GROUPS=grid[1], BN=ROWS, BK=SCALE_COLUMNS,
        FORMAT=FORMAT_CODES[matrix.format], SCALE=scale_kind(matrix),
        ROW_SCALE=matrix.row_scale is not None, PAIRS=matrix.paired, WIDE=dtype is torch.float32, num_warps=4,
    )  # fmt: skip
    return out


def scale_kind(matrix: PackedMatrix) -> int:
    """What `scale_at` calls the block scales of a matrix; 0 for none."""
    if matrix.block_scale is None:
        return 0
    if matrix.format is WeightFormat.INT8:
        return 3
    return 2 if matrix.paired else 1


@functools.cache
def _order(device: torch.device) -> Tensor:
    """[128] int32: the input at each place of an NVFP4 chunk."""
    places = torch.empty(CHUNK_COLUMNS[WeightFormat.NVFP4], dtype=torch.int32, device=device)
    list_places[(1,)](places)
    return places.argsort().int()
