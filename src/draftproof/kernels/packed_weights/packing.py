"""Packing: from weights as checkpoints hold them to `PackedMatrix` and `PackedExperts`.

All functions take weights with any leading dimensions ([experts, rows, columns]) and work on the device of
the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from draftproof.errors import UnsupportedRequest
from draftproof.kernels.dequantize.reference import NVFP4_BLOCK
from draftproof.kernels.packed_weights.formats import (
    BLOCK_BYTES,
    CHUNK_COLUMNS,
    SCALE_COLUMNS,
    TILE_ROWS,
    PackedExperts,
    PackedMatrix,
    WeightFormat,
)
from draftproof.kernels.packed_weights.nvfp4_blocks import encode_blocks

HALF_ROWS = TILE_ROWS // 2
INT8_MAXIMUM = 127
SLAB_BYTES = 1 << 25
"""NVFP4 weights are rearranged this many bytes at a time, which bounds what packing needs besides them."""


def pack_dense(weight: Tensor, bias: Tensor | None = None) -> PackedMatrix:
    """BF16.

    Args:
        weight: [..., rows, columns], any float dtype.
        bias: [..., rows] or None.
    """
    blocks = _row_major_blocks(weight.to(torch.bfloat16), WeightFormat.BF16)
    return PackedMatrix(WeightFormat.BF16, *_shape(weight), blocks, bias=_row_vector(bias))


def pack_fp8(weight: Tensor, scale: Tensor) -> PackedMatrix:
    """FP8 with a scale per tensor or per output row.

    Args:
        weight: [..., rows, columns] float8_e4m3fn.
        scale: float, one number, or [..., rows], or [..., rows, 1], or [..., 1, 1]; multiplies.
    """
    rows = weight.shape[-2]
    if scale.numel() == 1:
        per_row = scale.float().reshape(()).expand(weight.shape[:-1])
    else:
        per_row = (scale if scale.dim() < weight.dim() else scale.squeeze(-1)).float()
        per_row = per_row.expand(*weight.shape[:-2], rows)
    return PackedMatrix(
        WeightFormat.FP8,
        *_shape(weight),
        _row_major_blocks(weight, WeightFormat.FP8),
        row_scale=_row_vector(per_row),
    )


def pack_fp8_blocks(weight: Tensor, scale: Tensor) -> PackedMatrix:
    """FP8 with a scale per block of 128 x 128.

    Args:
        weight: [..., rows, columns] float8_e4m3fn.
        scale: [..., ceil(rows / 128), ceil(columns / 128)], multiplies.

    Raises:
        UnsupportedRequest: scales of another block size.
    """
    expected = tuple(-(-size // SCALE_COLUMNS) for size in weight.shape[-2:])
    if tuple(scale.shape[-2:]) != expected:
        raise UnsupportedRequest(
            f"FP8 weights {list(weight.shape[-2:])} have {list(scale.shape[-2:])} block scales, blocks of "
            f"128 x 128 have {list(expected)}",
            "Keep these weights as BF16.",
        )
    blocks = _row_major_blocks(weight, WeightFormat.FP8)
    return PackedMatrix(WeightFormat.FP8, *_shape(weight), blocks, block_scale=scale.float().contiguous())


def pack_int8(weight: Tensor, bias: Tensor | None = None) -> PackedMatrix:
    """Quantise to INT8: round to nearest, symmetric, a scale per row and 128 inputs.

    Args:
        weight: [..., rows, columns], any float dtype.
        bias: [..., rows] or None.
    """
    rows, columns = weight.shape[-2:]
    groups = -(-columns // SCALE_COLUMNS)
    values = torch.nn.functional.pad(weight.float(), (0, groups * SCALE_COLUMNS - columns))
    values = values.view(*weight.shape[:-1], groups, SCALE_COLUMNS)
    scale = values.abs().amax(-1) / INT8_MAXIMUM
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    whole = (values / scale.unsqueeze(-1)).round().clamp(-INT8_MAXIMUM, INT8_MAXIMUM)
    sign = (whole < 0).to(torch.uint8) << 7
    codes = (whole.abs().to(torch.uint8) | sign).flatten(-2)[..., :columns]
    return PackedMatrix(
        WeightFormat.INT8,
        rows,
        columns,
        _row_major_blocks(codes, WeightFormat.INT8),
        block_scale=_by_tile(_pad_rows(scale)),
        bias=_row_vector(bias),
    )


def pack_nvfp4(packed: Tensor, block_scale: Tensor, global_scale: Tensor) -> PackedMatrix:
    """NVFP4.

    Args:
        packed: uint8 [..., rows, columns / 2], low nibble first.
        block_scale: float8_e4m3fn [..., rows, columns / 16], not negative.
        global_scale: one number, or [..., rows], or [...] (one for each matrix); multiplies.
    """
    leading, rows, columns = packed.shape[:-2], packed.shape[-2], packed.shape[-1] * 2
    if global_scale.dim() == len(leading) and global_scale.numel() > 1:
        global_scale = global_scale.unsqueeze(-1)
    row_scale = (global_scale.reshape(()) if global_scale.numel() == 1 else global_scale).float()
    chunk = CHUNK_COLUMNS[WeightFormat.NVFP4]
    codes = _pad(packed, TILE_ROWS, chunk // 2).flatten(0, -2)
    scales = _pad(block_scale.view(torch.uint8), TILE_ROWS, chunk // NVFP4_BLOCK).flatten(0, -2)
    scales = scales.view(torch.float8_e4m3fn)
    tiles, chunks = -(-rows // TILE_ROWS), -(-columns // chunk)
    blocks = packed.new_empty(codes.shape[0] // TILE_ROWS, chunks, BLOCK_BYTES[WeightFormat.NVFP4])
    step = max(1, SLAB_BYTES // (TILE_ROWS * codes.shape[1]))
    for first in range(0, blocks.shape[0], step):
        part = slice(first * TILE_ROWS, (first + step) * TILE_ROWS)
        blocks[first : first + step] = encode_blocks(codes[part], scales[part])
    return PackedMatrix(
        WeightFormat.NVFP4,
        rows,
        columns,
        blocks.view(*leading, tiles, chunks, -1),
        row_scale=_row_vector(row_scale.expand(*leading, rows)),
    )


def concatenate(matrices: Sequence[PackedMatrix]) -> PackedMatrix:
    """Matrices of one input, their outputs side by side.

    Raises:
        UnsupportedRequest: they differ in format or scales, or one but the last ends within a tile (FP8 with
            block scales: within a block).
    """
    first = matrices[0]
    for matrix in matrices[:-1]:
        unit = (
            TILE_ROWS if first.format is not WeightFormat.FP8 or matrix.block_scale is None else SCALE_COLUMNS
        )
        if matrix.rows % unit:
            raise UnsupportedRequest(f"{matrix.rows} packed rows do not end at a multiple of {unit}")
    kinds = {
        (matrix.format, matrix.columns, matrix.paired, matrix.block_scale is None) for matrix in matrices
    }
    if len(kinds) > 1 or first.paired:
        raise UnsupportedRequest(f"packed matrices do not fit side by side: {sorted(map(str, kinds))}")
    return replace(
        first,
        rows=sum(matrix.rows for matrix in matrices),
        blocks=torch.cat([matrix.blocks for matrix in matrices], -3),
        row_scale=_joined(matrices, [matrix.row_scale for matrix in matrices], 1.0),
        block_scale=None
        if first.block_scale is None
        else torch.cat(
            [matrix.block_scale for matrix in matrices if matrix.block_scale is not None],
            -2 if first.format is WeightFormat.FP8 else -3,
        ),
        bias=_joined(matrices, [matrix.bias for matrix in matrices], 0.0),
    )


def pair_gate_up(gate: PackedMatrix, up: PackedMatrix) -> PackedMatrix:
    """Gate and up of one MLP, 8 rows of each in a tile.

    Raises:
        UnsupportedRequest: they differ in format, shape or kind of scales, or have a bias.
    """
    kinds = {
        (part.format, part.rows, part.columns, part.row_scale is None, part.block_scale is None)
        for part in (gate, up)
    }
    if len(kinds) > 1 or gate.bias is not None or up.bias is not None:
        raise UnsupportedRequest(f"gate and up do not fit together: {sorted(map(str, kinds))}")
    tiles = -(-gate.rows // HALF_ROWS)
    block_scale = None
    if gate.block_scale is not None and up.block_scale is not None:
        if gate.format is WeightFormat.FP8:
            block_scale = torch.cat((gate.block_scale, up.block_scale), -2)
        else:
            rows = [scale.transpose(-2, -1).flatten(-3, -2) for scale in (gate.block_scale, up.block_scale)]
            block_scale = _by_tile(_interleave_rows(rows[0], rows[1], tiles))
    row_scale = None
    if gate.row_scale is not None and up.row_scale is not None:
        columns = (gate.row_scale.unsqueeze(-1), up.row_scale.unsqueeze(-1))
        row_scale = _interleave_rows(*columns, tiles).squeeze(-1)
    return replace(
        gate,
        rows=2 * gate.rows,
        blocks=_interleave_blocks(gate, up, tiles),
        row_scale=row_scale,
        block_scale=block_scale,
        paired=True,
    )


def pack_experts(gate: PackedMatrix, up: PackedMatrix, down: PackedMatrix) -> PackedExperts:
    """One layer's experts from matrices whose tensors all have a leading dimension for the experts.

    Raises:
        UnsupportedRequest: gate and up do not fit together, or down has another format.
    """
    gate_up = pair_gate_up(gate, up)
    if down.format is not gate.format or (down.rows, down.columns) != (gate.columns, gate.rows):
        raise UnsupportedRequest(
            f"experts' down is {down.format.value} [{down.rows}, {down.columns}], gate is "
            f"{gate.format.value} [{gate.rows}, {gate.columns}]"
        )
    return PackedExperts(
        gate.format,
        hidden=gate.columns,
        intermediate=gate.rows,
        gate_up=gate_up.blocks,
        down=down.blocks,
        gate_up_scale=gate_up.row_scale,
        down_scale=down.row_scale,
        gate_up_block_scale=gate_up.block_scale,
        down_block_scale=down.block_scale,
    )


def stack(matrices: Sequence[PackedMatrix]) -> PackedMatrix:
    """Equal matrices under a leading dimension, as `pack_experts` takes them."""

    def along(parts: list[Tensor | None]) -> Tensor | None:
        present = [part for part in parts if part is not None]
        return torch.stack(present) if present else None

    return replace(
        matrices[0],
        blocks=torch.stack([matrix.blocks for matrix in matrices]),
        row_scale=along([matrix.row_scale for matrix in matrices]),
        block_scale=along([matrix.block_scale for matrix in matrices]),
        bias=along([matrix.bias for matrix in matrices]),
    )


def _shape(weight: Tensor) -> tuple[int, int]:
    return weight.shape[-2], weight.shape[-1]


def _row_major_blocks(weight: Tensor, kept_as: WeightFormat) -> Tensor:
    """[..., rows, columns] to uint8 [..., tiles, chunks, 1024]."""
    chunk = CHUNK_COLUMNS[kept_as]
    codes = weight if weight.element_size() > 1 else weight.view(torch.uint8)
    padded = _pad(codes, TILE_ROWS, chunk)
    tiles, chunks = padded.shape[-2] // TILE_ROWS, padded.shape[-1] // chunk
    split = padded.view(*padded.shape[:-2], tiles, TILE_ROWS, chunks, chunk).transpose(-3, -2)
    return split.contiguous().view(torch.uint8).view(*weight.shape[:-2], tiles, chunks, -1)


def _interleave_blocks(gate: PackedMatrix, up: PackedMatrix, tiles: int) -> Tensor:
    """Halves of tiles change partners. The halves of a block's weights follow each other, and so do those of
    NVFP4's scales behind them."""
    size = BLOCK_BYTES[gate.format]
    parts = (slice(0, 1024), slice(1024, size))
    pieces = []
    for part in parts if size > 1024 else parts[:1]:
        # [..., tile, gate or up, chunk, bytes], then half and bytes of a half
        both = torch.stack([matrix.blocks[..., part] for matrix in (gate, up)], -3)
        halves = both.view(*both.shape[:-1], 2, -1)
        swapped = halves.transpose(-4, -2).flatten(-2)  # [..., tile, half, chunk, gate and up]
        pieces.append(swapped.flatten(-4, -3)[..., :tiles, :, :])
    return torch.cat(pieces, -1).contiguous()


def _interleave_rows(gate: Tensor, up: Tensor, tiles: int) -> Tensor:
    """[..., rows of tiles, n] of gate and of up to [..., tiles * 16, n] of the pair."""
    split = (*gate.shape[:-2], -1, HALF_ROWS, gate.shape[-1])
    both = torch.stack([part.reshape(split) for part in (gate, up)], -3)
    return both[..., :tiles, :, :, :].flatten(-4, -2).contiguous()


def _by_tile(scale: Tensor) -> Tensor:
    """[..., tiles * 16, groups] to [..., tiles, groups, 16]."""
    leading, (rows, groups) = scale.shape[:-2], scale.shape[-2:]
    tiled = scale.view(*leading, rows // TILE_ROWS, TILE_ROWS, groups)
    return tiled.transpose(-2, -1).contiguous()


def _joined(
    matrices: Sequence[PackedMatrix], vectors: Sequence[Tensor | None], neutral: float
) -> Tensor | None:
    """Vectors per row side by side, with a neutral value where a matrix has none."""
    if all(vector is None for vector in vectors):
        return None
    return torch.cat(
        [
            matrix.blocks.new_full(
                (*matrix.blocks.shape[:-2][:-1], matrix.blocks.shape[-3] * TILE_ROWS),
                neutral,
                dtype=torch.float32,
            )
            if vector is None
            else vector
            for matrix, vector in zip(matrices, vectors, strict=True)
        ],
        -1,
    )


def _row_vector(vector: Tensor | None) -> Tensor | None:
    """[..., rows] to float32 [..., tiles * 16]."""
    if vector is None:
        return None
    return _pad_rows(vector.float().unsqueeze(-1)).squeeze(-1)


def _pad_rows(values: Tensor) -> Tensor:
    return _pad(values, TILE_ROWS, 1).contiguous()


def _pad(values: Tensor, rows: int, columns: int) -> Tensor:
    """Zeros behind the last two dimensions, up to multiples of `rows` and `columns`."""
    below, right = -values.shape[-2] % rows, -values.shape[-1] % columns
    if not below and not right:
        return values
    return torch.nn.functional.pad(values, (0, right, 0, below))
