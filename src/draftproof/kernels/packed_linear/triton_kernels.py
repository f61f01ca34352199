"""Kernels of the packed linear in Triton: rows prepared for the product, and the product.

Weights are the left operand of `tl.dot` and all rows of x the right one, so that few rows cost little
arithmetic. Where there are fewer tiles than multiprocessors, the inputs are split among several programs;
the last of them to arrive adds all parts in their order, so that the sum does not depend on who came last.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.experts_step.triton_kernels import place_of
from draftproof.kernels.packed_weights.triton_kernels import scale_at, weights_at
from draftproof.kernels.triton_operands import OPERAND, to_bfloat16


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
def _finish(
    total, factor, row_scale, bias, residual, out, n0, r0, rows, outputs, residual_stride, out_stride,
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
        total = total * factor[None, :]
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
def _ask_for_weights(
    blocks, tile, part, TILES: tl.constexpr, TILE_BYTES: tl.constexpr, PART_BYTES: tl.constexpr,
    BN: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Ask L2 for a program's weights, PART_BYTES of each of BN / 16 tiles, in PIECES pieces (of a thread)."""
    each: tl.constexpr = PIECES // (BN // 16)
    size: tl.constexpr = (PART_BYTES + each * 16 - 1) // (each * 16) * 16
    piece = tl.arange(0, PIECES)
    begin = part * PART_BYTES + piece % each * size
    begin = tl.minimum(begin, TILE_BYTES - size)
    at = tl.minimum(tile + piece // each, TILES - 1).to(tl.int64) * TILE_BYTES + begin
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0;",
        "=r,l,r",
        [(blocks + at).to(tl.int64, bitcast=True), tl.full([PIECES], size, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def multiply(
    x, norm, factors, blocks, row_scale, block_scale, bias, residual, out, parts, arrivals, rows, outputs,
    x_stride, residual_stride, out_stride, scale_rows, epsilon,
    K: tl.constexpr, TILES: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr, GROUPS: tl.constexpr,
    BN: tl.constexpr, BR: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, FORMAT: tl.constexpr,
    SCALE: tl.constexpr, NORM: tl.constexpr, ROW_SCALE: tl.constexpr, BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr, PAIRS: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """[BN] outputs of [BR] rows; with SPLIT > 1 of one part of the inputs.

    K: inputs of a row of x. NORM: 0 none, 1 rows are prepared, 2 rows are multiplied by the norm's weight
    here (with SPLIT 1 only).
    """
    row_block, column_block, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tile = column_block * (BN // 16)
    r = row_block * BR + tl.arange(0, BR)
    k = tl.arange(0, BK)
    steps: tl.constexpr = (CHUNKS * CHUNK + BK - 1) // BK
    each: tl.constexpr = (steps + SPLIT - 1) // SPLIT
    if PDL:
        gdc_launch_dependents()
        if row_block == 0:
            TILE_BYTES: tl.constexpr = CHUNKS * (1152 if FORMAT == 2 else 1024)
            PART_BYTES: tl.constexpr = TILE_BYTES // SPLIT // 128 * 128
            _ask_for_weights(blocks, tile, part, TILES, TILE_BYTES, PART_BYTES, BN, THREADS)
        gdc_wait()
    total = tl.zeros([BN, BR], dtype=tl.float32)
    square = tl.zeros([BR], dtype=tl.float32)
    for step in range(part * each, min(steps, part * each + each)):
        k0 = step * BK
        weight = weights_at(blocks, tile, k0, TILES, CHUNKS, BN, BK, FORMAT)
        inside = (r < rows)[:, None] & (k0 + k < K)[None, :]
        value = tl.load(x + r[:, None] * x_stride + (k0 + k)[None, :], mask=inside, other=0.0)
        if NORM == 2:
            wide = value.to(tl.float32)
            square += tl.sum(wide * wide, axis=1)
            value = to_bfloat16(wide * tl.load(norm + k0 + k, mask=k0 + k < K, other=0.0)[None, :])
        value = value.to(OPERAND)
        if SCALE == 0:
            total = tl.dot(weight, tl.trans(value), total)
        else:
            scale = scale_at(block_scale, tile, k0, scale_rows, TILES, GROUPS, BN, SCALE)
            total += tl.dot(weight, tl.trans(value)) * scale[:, None]
    if SPLIT == 1:
        factor = square
        if NORM == 1:
            factor = tl.load(factors + r, mask=r < rows, other=0.0)
        if NORM == 2:
            factor = tl.rsqrt(square / K + epsilon)
        _finish(
            total, factor, row_scale, bias, residual, out, column_block * BN, row_block * BR, rows, outputs,
            residual_stride, out_stride, BN, BR, NORM, ROW_SCALE, BIAS, RESIDUAL, PAIRS, WIDE,
        )  # fmt: skip
    else:
        group = row_block * tl.num_programs(1) + column_block
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
            factor = square
            if NORM == 1:
                factor = tl.load(factors + r, mask=r < rows, other=0.0)
            _finish(
                total, factor, row_scale, bias, residual, out, column_block * BN, row_block * BR, rows,
                outputs, residual_stride, out_stride, BN, BR, NORM, ROW_SCALE, BIAS, RESIDUAL, PAIRS, WIDE,
            )  # fmt: skip
