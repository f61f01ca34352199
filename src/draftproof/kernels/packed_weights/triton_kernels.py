"""Packed weights in Triton: operands of `tl.dot` from blocks, for every format."""

from __future__ import annotations

import triton
import triton.language as tl

from draftproof.kernels.experts_step.triton_kernels import nvfp4_at, place_of
from draftproof.kernels.triton_operands import OPERAND, operand_of_bits, to_bfloat16


@triton.jit
def weights_at(
    blocks, tile, k0, TILES: tl.constexpr, CHUNKS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    FORMAT: tl.constexpr,
):  # fmt: skip
    """[BN, BK] operands without row and block scales, of the tiles from `tile` and the inputs from `k0`.

    FORMAT: 0 BF16, 1 FP8, 2 NVFP4 (in the order of `place_of`), 3 INT8.
    """
    row = tl.arange(0, BN)
    at = tile + row // 16
    if FORMAT == 2:
        return nvfp4_at(blocks, at, row, k0 // 128, TILES, CHUNKS, BN, BK).to(OPERAND) * 512.0
    CHUNK: tl.constexpr = 32 if FORMAT == 0 else 64
    k = k0 + tl.arange(0, BK)
    place = (at * CHUNKS)[:, None] * (16 * CHUNK) + (k // CHUNK)[None, :] * (16 * CHUNK)
    place += (row % 16)[:, None] * CHUNK + (k % CHUNK)[None, :]
    inside = (at < TILES)[:, None] & (k < CHUNKS * CHUNK)[None, :]
    if FORMAT == 0:
        source = blocks.to(tl.pointer_type(tl.bfloat16), bitcast=True)
        return tl.load(source + place, mask=inside, other=0.0).to(OPERAND)
    code = tl.load(blocks + place, mask=inside, other=0).to(tl.int16)
    if FORMAT == 1:
        # The exponent's bits under BF16's: 2^-120 times the value.
        return operand_of_bits(((code & 0x80) << 8) | ((code & 0x7F) << 4)) * 1.329227995784916e36
    magnitude = operand_of_bits((code & 0x7F) | 0x4300) - 128.0
    return tl.where(code >= 0x80, -magnitude, magnitude).to(OPERAND)


@triton.jit
def scale_at(
    block_scale, tile, k0, scale_rows, TILES: tl.constexpr, GROUPS: tl.constexpr, BN: tl.constexpr,
    KIND: tl.constexpr,
):  # fmt: skip
    """[BN] scales of the inputs from `k0` on (within one group of 128)."""
    row = tl.arange(0, BN)
    at = tile + row // 16
    group = k0 // 128
    if KIND == 1:
        place = (at // 8) * GROUPS + group
    elif KIND == 2:
        place = (at // 16 + row // 8 % 2 * scale_rows) * GROUPS + group
    else:
        place = (at * GROUPS + group) * 16 + row % 16
    return tl.load(block_scale + place, mask=at < TILES, other=0.0)


@triton.jit
def unpack_block(
    blocks, row_scale, block_scale, order, out, rows, scale_rows,
    K: tl.constexpr, TILES: tl.constexpr, CHUNKS: tl.constexpr, GROUPS: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, FORMAT: tl.constexpr, SCALE: tl.constexpr, ROW_SCALE: tl.constexpr,
    PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """[BN] rows and [BK] = 128 inputs of a matrix, as real numbers. `order`: [128], for NVFP4 the input that
    stands at each place."""
    tile, k0 = tl.program_id(0) * (BN // 16), tl.program_id(1) * BK
    value = weights_at(blocks, tile, k0, TILES, CHUNKS, BN, BK, FORMAT).to(tl.float32)
    n = tile * 16 + tl.arange(0, BN)
    inside = n < TILES * 16
    if SCALE > 0:
        value = value * scale_at(block_scale, tile, k0, scale_rows, TILES, GROUPS, BN, SCALE)[:, None]
    if ROW_SCALE:
        value = value * tl.load(row_scale + n, mask=inside, other=0.0)[:, None]
    k = k0 + tl.arange(0, BK)
    if FORMAT == 2:
        k = k0 + tl.load(order + tl.arange(0, BK))
    real = n
    if PAIRS:
        of_half = n // 16 * 8 + n % 8
        real = of_half + n // 8 % 2 * (rows // 2)
        inside = inside & (of_half < rows // 2)
    if not WIDE:
        value = to_bfloat16(value)
    kept = (inside & (real < rows))[:, None] & (k < K)[None, :]
    tl.store(out + real[:, None].to(tl.int64) * K + k[None, :], value, mask=kept)


@triton.jit
def list_places(out):
    """[128] int32: where NVFP4's inputs of a chunk stand in the order of `weights_at`."""
    k = tl.arange(0, 128)
    tl.store(out + k, place_of(k, 2))
