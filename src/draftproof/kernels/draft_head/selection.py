"""Rows of a packed output head as a packed matrix of their own."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from draftproof.kernels.packed_weights.formats import TILE_ROWS, PackedMatrix, WeightFormat
from draftproof.kernels.packed_weights.packing import pack_dense, pack_int8
from draftproof.kernels.packed_weights.unpacking import unpack

WEIGHT_BYTES = 1024
"""Of a block's 16 rows, 64 each; what follows in NVFP4 are the rows' scales, 8 bytes each."""


def select_rows(matrix: PackedMatrix, rows: Tensor) -> PackedMatrix:
    """Some rows of a packed matrix, in the given order and in the same format.

    FP8 with block scales becomes BF16: its scales belong to blocks of 128 neighbouring rows.

    Args:
        matrix: not a pair of gate and up.
        rows: [chosen] integers.
    """
    if matrix.format is WeightFormat.FP8 and matrix.block_scale is not None:
        return pack_dense(unpack(matrix, torch.bfloat16)[rows.long()], _of_rows(matrix.bias, rows))
    block_scale = None
    if matrix.block_scale is not None:
        # INT8: [tiles, groups, 16].
        by_row = matrix.block_scale.transpose(1, 2).flatten(0, 1)
        chosen = _padded(by_row, rows).view(-1, TILE_ROWS, by_row.shape[1])
        block_scale = chosen.transpose(1, 2).contiguous()
    parts = (matrix.blocks[..., :WEIGHT_BYTES], matrix.blocks[..., WEIGHT_BYTES:])
    return replace(
        matrix,
        rows=len(rows),
        blocks=torch.cat([_blocks_of_rows(part, rows) for part in parts if part.shape[2]], 2),
        row_scale=None if matrix.row_scale is None else _padded(matrix.row_scale, rows),
        block_scale=block_scale,
        bias=None if matrix.bias is None else _padded(matrix.bias, rows),
    )


def as_int8(matrix: PackedMatrix) -> PackedMatrix:
    """The same matrix in half of BF16's bytes; formats of 8 bits and less are left as they are."""
    if matrix.format is not WeightFormat.BF16:
        return matrix
    bias = None if matrix.bias is None else matrix.bias[: matrix.rows]
    return pack_int8(unpack(matrix, torch.bfloat16), bias)


def _blocks_of_rows(part: Tensor, rows: Tensor) -> Tensor:
    """[tiles, chunks, 16 * bytes of a row] to the same of the chosen rows."""
    tiles, chunks, size = part.shape
    by_row = part.reshape(tiles, chunks, TILE_ROWS, size // TILE_ROWS).transpose(1, 2).flatten(0, 1)
    chosen = _padded(by_row, rows).view(-1, TILE_ROWS, chunks, size // TILE_ROWS)
    return chosen.transpose(1, 2).reshape(-1, chunks, size)


def _padded(by_row: Tensor, rows: Tensor) -> Tensor:
    """Chosen rows, then zeros up to a whole tile."""
    chosen = by_row[rows.long()]
    missing = -len(rows) % TILE_ROWS
    return torch.cat((chosen, chosen.new_zeros(missing, *chosen.shape[1:]))) if missing else chosen


def _of_rows(bias: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if bias is None else bias[rows.long()]
