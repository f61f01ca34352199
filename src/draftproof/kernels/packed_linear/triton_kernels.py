"""Kernels of the packed linear in Triton: rows prepared for the product, and the product.

Weights are the left operand of `tl.dot` and all rows of x the right one, so that few rows cost little
arithmetic. Where there are fewer tiles than multiprocessors, the inputs are split among several programs;
the last of them to arrive adds all parts in their order, so that the sum does not depend on who came last.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.experts_step.triton_kernels import nvfp4_at, place_of
from draftproof.kernels.triton_operands import OPERAND, operand_of_bits, to_bfloat16

NO_SCALE: tl.constexpr = tl.constexpr(0)
BLOCK_SCALE: tl.constexpr = tl.constexpr(1)
PAIRED_BLOCK_SCALE: tl.constexpr = tl.constexpr(2)
ROW_GROUP_SCALE: tl.constexpr = tl.constexpr(3)


@triton.jit
def prepare_rows(
    x, x_stride, norm, prepared, factors, epsilon,
    K: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, FORMAT: tl.constexpr, NORM: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Rows of x times the norm's weight, in the order of the packed weights, and each row's 1 / rms."""
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    if NORM:
        factor = tl.load(norm + k, mask=k < K, other=0.0)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    value = tl.load(x + row * x_stride + k, mask=k < K, other=0.0).to(tl.float32)
    if NORM:
        tl.store(factors + row, tl.rsqrt(tl.sum(value * value, axis=0) / K + epsilon))
        value = value * factor
    place = place_of(k, 2) if FORMAT == 2 else k
    tl.store(prepared + row * PADDED + place, to_bfloat16(value), mask=k < PADDED)


@triton.jit
def _weights(
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
def _scale(
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
def _finish(
    total, factors, row_scale, bias, residual, out, n0, r0, rows, outputs, residual_stride, out_stride,
    BN: tl.constexpr, BR: tl.constexpr, NORM: tl.constexpr, ROW_SCALE: tl.constexpr, BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr, PAIRS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Everything behind the product of [BN] outputs and [BR] rows."""
    n = n0 + tl.arange(0, BN)
    r = r0 + tl.arange(0, BR)
    # Row scale and bias are padded to whole tiles; what lies behind the last tile is not stored.
    padded = (outputs * 2 if PAIRS else outputs) + 15
    inside = n < padded // 16 * 16
    if ROW_SCALE:
        total = total * tl.load(row_scale + n, mask=inside, other=0.0)[:, None]
    if NORM:
        total = total * tl.load(factors + r, mask=r < rows, other=0.0)[None, :]
    if BIAS:
        total = total + tl.load(bias + n, mask=inside, other=0.0)[:, None]
    column = n
    if PAIRS:
        both = tl.permute(tl.reshape(total, [BN // 16, 2, 8, BR]), (0, 2, 3, 1))
        gate, up = tl.split(both)
        total = tl.reshape(gate / (1.0 + tl.exp(-gate)) * up, [BN // 2, BR])
        column = n0 // 2 + tl.arange(0, BN // 2)
    kept = (column < outputs)[:, None] & (r < rows)[None, :]
    if RESIDUAL:
        before = tl.load(residual + r[None, :] * residual_stride + column[:, None], mask=kept, other=0.0)
        total = total + before.to(tl.float32)
    if not WIDE:
        total = to_bfloat16(total)
    tl.store(out + r[None, :] * out_stride + column[:, None], total, mask=kept)


@triton.jit
def multiply(
    x, factors, blocks, row_scale, block_scale, bias, residual, out, parts, arrivals, rows, outputs, x_stride,
    residual_stride, out_stride, scale_rows,
    K: tl.constexpr, TILES: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr, GROUPS: tl.constexpr,
    BN: tl.constexpr, BR: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, FORMAT: tl.constexpr,
    SCALE: tl.constexpr, NORM: tl.constexpr, ROW_SCALE: tl.constexpr, BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr, PAIRS: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """[BN] outputs of [BR] rows; with SPLIT > 1 of one part of the inputs. K: inputs of a row of x."""
    column_block, row_block, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tile = column_block * (BN // 16)
    r = row_block * BR + tl.arange(0, BR)
    k = tl.arange(0, BK)
    steps: tl.constexpr = (CHUNKS * CHUNK + BK - 1) // BK
    each: tl.constexpr = (steps + SPLIT - 1) // SPLIT
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    total = tl.zeros([BN, BR], dtype=tl.float32)
    for step in range(part * each, min(steps, part * each + each)):
        k0 = step * BK
        weight = _weights(blocks, tile, k0, TILES, CHUNKS, BN, BK, FORMAT)
        inside = (r < rows)[:, None] & (k0 + k < K)[None, :]
        value = tl.load(x + r[:, None] * x_stride + (k0 + k)[None, :], mask=inside, other=0.0).to(OPERAND)
        if SCALE == 0:
            total = tl.dot(weight, tl.trans(value), total)
        else:
            scale = _scale(block_scale, tile, k0, scale_rows, TILES, GROUPS, BN, SCALE)
            total += tl.dot(weight, tl.trans(value)) * scale[:, None]
    if SPLIT == 1:
        _finish(
            total, factors, row_scale, bias, residual, out, column_block * BN, row_block * BR, rows, outputs,
            residual_stride, out_stride, BN, BR, NORM, ROW_SCALE, BIAS, RESIDUAL, PAIRS, WIDE,
        )  # fmt: skip
    else:
        group = row_block * tl.num_programs(0) + column_block
        place = tl.arange(0, BN)[:, None] * BR + tl.arange(0, BR)[None, :]
        own = parts + (group * SPLIT + part) * (BN * BR)
        tl.store(own + place, total, cache_modifier=".cg")
        tl.debug_barrier()
        if tl.atomic_add(arrivals + group, 1) == SPLIT - 1:
            total = tl.zeros([BN, BR], dtype=tl.float32)
            for other in range(SPLIT):
                source = parts + (group * SPLIT + other) * (BN * BR)
                total += tl.load(source + place, cache_modifier=".cg")
            tl.store(arrivals + group, 0)
            _finish(
                total, factors, row_scale, bias, residual, out, column_block * BN, row_block * BR, rows,
                outputs, residual_stride, out_stride, BN, BR, NORM, ROW_SCALE, BIAS, RESIDUAL, PAIRS, WIDE,
            )  # fmt: skip
