"""From stored matrices to the packed blocks that the kernels of a device step read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch

from draftproof.errors import UnsupportedRequest
from draftproof.kernels.dequantize.reference import (
    dequantize_fp8_block,
    dequantize_fp8_scaled,
    dequantize_nvfp4,
)
from draftproof.kernels.packed_weights.formats import SCALE_COLUMNS, TILE_ROWS, PackedMatrix, WeightFormat
from draftproof.kernels.packed_weights.packing import (
    concatenate,
    pack_dense,
    pack_fp8,
    pack_fp8_blocks,
    pack_nvfp4,
    pair_gate_up,
)
from draftproof.layers.linear import (
    Fp8BlockLinear,
    Fp8ScaledLinear,
    Linear,
    Nvfp4Linear,
    PackedLinear,
    ParallelLinear,
)
from draftproof.models.stored_linear import Matrix, Stored


def packed_projection(members: Sequence[Stored]) -> Linear:
    """Members of one input as few packed matrices: equal neighbours are one, the rest stand side by side."""
    merged: list[Stored] = []
    for is_dense, run in groupby(members, lambda member: isinstance(member, Matrix)):
        # Real numbers join before they are packed, so that none of them has to fill whole tiles.
        neighbours = list(run)
        merged += [_dense_rows(neighbours)] if is_dense else neighbours
    groups: list[list[PackedMatrix]] = []
    for matrix in map(pack_stored, merged):
        if groups and _fits(groups[-1][-1], matrix):
            groups[-1].append(matrix)
        else:
            groups.append([matrix])
    parts = [PackedLinear(concatenate(group) if len(group) > 1 else group[0]) for group in groups]
    return parts[0] if len(parts) == 1 else ParallelLinear(parts)


def packed_pair(gate: Stored, up: Stored) -> Linear:
    """Gate and up with 8 rows of each in a tile; as real numbers when they are stored differently."""
    packed = [pack_stored(member) for member in (gate, up)]
    if packed[0].format is not packed[1].format or _has_blocks(packed[0]) != _has_blocks(packed[1]):
        packed = [pack_dense(_values(member).values) for member in (gate, up)]
    return PackedLinear(pair_gate_up(*packed))


def pack_stored(stored: Stored) -> PackedMatrix:
    """One matrix in its own precision; FP8 with blocks other than 128 x 128 becomes BF16.

    Raises:
        UnsupportedRequest: a stored form that has no packed one.
    """
    if isinstance(stored, Nvfp4Linear):
        return pack_nvfp4(stored.packed, stored.block_scale, stored.global_scale)
    if isinstance(stored, Fp8ScaledLinear):
        return pack_fp8(stored.weight, stored.scale)
    if isinstance(stored, Fp8BlockLinear) and stored.block == (SCALE_COLUMNS, SCALE_COLUMNS):
        return pack_fp8_blocks(stored.weight, stored.scale_inverse)
    dense = _values(stored)
    return pack_dense(dense.values, dense.bias)


def _values(stored: Stored) -> Matrix:
    """Real numbers, scales multiplied in."""
    if isinstance(stored, Matrix):
        if stored.scale is None:
            return stored
        return Matrix(stored.values.float() * stored.scale.unsqueeze(1), None, stored.bias)
    if isinstance(stored, Fp8BlockLinear):
        return Matrix(dequantize_fp8_block(stored.weight, stored.scale_inverse, stored.block))
    if isinstance(stored, Fp8ScaledLinear):
        return Matrix(dequantize_fp8_scaled(stored.weight, stored.scale))
    if isinstance(stored, Nvfp4Linear):
        return Matrix(dequantize_nvfp4(stored.packed, stored.block_scale, stored.global_scale))
    raise UnsupportedRequest(f"a {type(stored).__name__} cannot be packed")


def _dense_rows(matrices: Sequence[Stored]) -> Matrix:
    real = [_values(matrix) for matrix in matrices]
    if len(real) == 1:
        return real[0]
    bias = None
    if any(matrix.bias is not None for matrix in real):
        bias = torch.cat(
            [
                matrix.values.new_zeros(matrix.values.shape[0]) if matrix.bias is None else matrix.bias
                for matrix in real
            ]
        )
    return Matrix(torch.cat([matrix.values for matrix in real]), None, bias)


def _fits(before: PackedMatrix, after: PackedMatrix) -> bool:
    """Whether the rows of one may follow those of the other in one matrix."""
    if before.format is not after.format or _has_blocks(before) != _has_blocks(after):
        return False
    unit = SCALE_COLUMNS if before.format is WeightFormat.FP8 and _has_blocks(before) else TILE_ROWS
    return before.rows % unit == 0


def _has_blocks(matrix: PackedMatrix) -> bool:
    return matrix.block_scale is not None
