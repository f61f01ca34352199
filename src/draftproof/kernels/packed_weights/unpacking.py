"""Unpacking in plain torch: what a packed matrix means."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.kernels.packed_weights.formats import (
    CHUNK_COLUMNS,
    SCALE_COLUMNS,
    TILE_ROWS,
    PackedMatrix,
    WeightFormat,
)
from draftproof.kernels.packed_weights.nvfp4_blocks import decode_blocks

HALF_ROWS = TILE_ROWS // 2


def unpack(matrix: PackedMatrix, dtype: torch.dtype) -> Tensor:
    """The real numbers, scales included, bias not.

    Args:
        matrix: without a leading dimension.
        dtype: of the result; products with scales are made in float32.

    Returns:
        [rows, columns]; of a pair, gate's rows and then up's.
    """
    tiles, chunks = matrix.blocks.shape[:2]
    codes = _codes(matrix, tiles, chunks)
    if matrix.row_scale is None and matrix.block_scale is None:
        values = codes
    else:
        values = codes.float()
        if matrix.block_scale is not None:
            values = values * _spread_block_scale(matrix, tiles, chunks)
        if matrix.row_scale is not None:
            values = values * matrix.row_scale.unsqueeze(1)
    return _real_rows(values, matrix)[:, : matrix.columns].to(dtype)


def _codes(matrix: PackedMatrix, tiles: int, chunks: int) -> Tensor:
    """[tiles * 16, padded columns] before row and block scales (NVFP4: with its group scales)."""
    if matrix.format is WeightFormat.NVFP4:
        return decode_blocks(matrix.blocks)
    chunk = CHUNK_COLUMNS[matrix.format]
    rows = matrix.blocks.view(tiles, chunks, TILE_ROWS, -1).transpose(1, 2)
    if matrix.format is WeightFormat.BF16:
        return rows.view(torch.bfloat16).reshape(tiles * TILE_ROWS, chunks * chunk)
    flat = rows.reshape(tiles * TILE_ROWS, chunks * chunk)
    if matrix.format is WeightFormat.FP8:
        return flat.view(torch.float8_e4m3fn)
    magnitude = (flat & 0x7F).float()
    return torch.where(flat >= 0x80, -magnitude, magnitude)


def _spread_block_scale(matrix: PackedMatrix, tiles: int, chunks: int) -> Tensor:
    """[tiles * 16, padded columns], or something that broadcasts to it."""
    scale = matrix.block_scale
    assert scale is not None
    if matrix.format is WeightFormat.FP8:
        scale = scale[block_scale_rows(matrix, tiles, scale.device)]
    else:
        scale = scale.transpose(1, 2).flatten(0, 1)
    return scale.repeat_interleave(SCALE_COLUMNS, 1)[:, : chunks * CHUNK_COLUMNS[matrix.format]]


def block_scale_rows(matrix: PackedMatrix, tiles: int, device: torch.device) -> Tensor:
    """Block FP8: [tiles * 16] int64, the row of `block_scale` that holds for each packed row."""
    row = torch.arange(tiles * TILE_ROWS, device=device)
    if not matrix.paired:
        last = -(-matrix.rows // SCALE_COLUMNS) - 1
        return (row // SCALE_COLUMNS).clamp(max=last)
    blocks = -(-(matrix.rows // 2) // SCALE_COLUMNS)
    within = (row // TILE_ROWS * HALF_ROWS // SCALE_COLUMNS).clamp(max=blocks - 1)
    return within + (row // HALF_ROWS % 2) * blocks


def _real_rows(values: Tensor, matrix: PackedMatrix) -> Tensor:
    if not matrix.paired:
        return values[: matrix.rows]
    half = matrix.rows // 2
    pairs = values.view(-1, 2, HALF_ROWS, values.shape[1]).transpose(0, 1)
    return pairs.reshape(2, -1, values.shape[1])[:, :half].flatten(0, 1)
