"""Kernels of the experts in Triton: rows prepared, gate and up with their activation, down, a row's sum.

Weights are the left operand of `tl.dot`, at least 64 rows of them, and up to 16 pairs of a row and an expert
the right one, so that a small group of rows costs little arithmetic. `LIST` says where the pairs of a program
come from: 0 `ManyRowsRouting` (blocks of sorted pairs), 1 `FewRowsRouting` (each distinct expert on all rows,
pair expert * 8 + row), 2 all rows of one expert (the shared one).

FP8 and NVFP4 weights become bfloat16 by shifting their bits under its exponent, which makes them 2^-120 and
2^-126 times too small; NVFP4's block scales make up for it, and activations before FP8 weights are raised by
2^64. NVFP4 weights come out of their words in an order of their own, so the activations are written in that
order beforehand. (GPUs from compute capability 10.0 on multiply FP4 themselves, `tl.dot_scaled`: untested;
it would round activations to FP8 or FP4.)
"""

from __future__ import annotations

import triton
import triton.language as tl

from draftproof.kernels.triton_operands import OPERAND, operand_of_bits, to_bfloat16

BF16: tl.constexpr = tl.constexpr(0)
FP8: tl.constexpr = tl.constexpr(1)
NVFP4: tl.constexpr = tl.constexpr(2)
MANY: tl.constexpr = tl.constexpr(0)
FEW: tl.constexpr = tl.constexpr(1)
ALL: tl.constexpr = tl.constexpr(2)
PAIRS: tl.constexpr = tl.constexpr(16)
ROOM: tl.constexpr = tl.constexpr(8)
VALUES: tl.constexpr = tl.constexpr(0x81C081C0)
"""Sign and magnitude of two e2m1 numbers, where a pair of bfloat16 has its sign, the lowest bits of its
exponent and the highest of its mantissa; see `packed_weights/nvfp4_blocks.py`."""
LEFT: tl.constexpr = tl.constexpr(0x06030603)
NOT_LEFT: tl.constexpr = tl.constexpr(0xF9FCF9FC)


@triton.jit
def place_of(k, FORMAT: tl.constexpr):
    """Where input k stands in a row of activations: by couple of words, first or second of a pair, word,
    group parity, pair."""
    if FORMAT == 2:
        group, within = k % 128 // 16, k % 16
        couple = within // 4 * 2 + group // 4
        place = k // 128 * 128 + couple * 16 + within % 2 * 8 + group % 4 * 2 + within % 4 // 2
    else:
        place = k
    return place


@triton.jit
def raised(value, FORMAT: tl.constexpr):
    """Activations before FP8 weights times 2^64."""
    if FORMAT == 1:
        value = value * 18446744073709551616.0
    return value


@triton.jit
def undone(total, FORMAT: tl.constexpr):
    """Products without the powers of two of the decoding: 2^120 / 2^64, or 2^126 / 2^117."""
    if FORMAT == 1:
        total = total * 72057594037927936.0
    if FORMAT == 2:
        total = total * 512.0
    return total


@triton.jit
def weights_at(
    blocks, tile, k0, TILES: tl.constexpr, CHUNKS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    FORMAT: tl.constexpr,
):  # fmt: skip
    """[BN, BK] bfloat16 weights (FP8 without scales), of the tiles from `tile` and the inputs from `k0`."""
    row = tl.arange(0, BN)
    at = tile + row // 16
    if FORMAT == 0:
        k = k0 + tl.arange(0, BK)
        place = (
            (at * CHUNKS)[:, None] * 512
            + (k // 32)[None, :] * 512
            + (row % 16)[:, None] * 32
            + (k % 32)[None, :]
        )
        inside = (at < TILES)[:, None] & (k < CHUNKS * 32)[None, :]
        weight = tl.load(
            blocks.to(tl.pointer_type(tl.bfloat16), bitcast=True) + place, mask=inside, other=0.0
        )
    elif FORMAT == 1:
        k = k0 + tl.arange(0, BK)
        place = (
            (at * CHUNKS)[:, None] * 1024
            + (k // 64)[None, :] * 1024
            + (row % 16)[:, None] * 64
            + (k % 64)[None, :]
        )
        inside = (at < TILES)[:, None] & (k < CHUNKS * 64)[None, :]
        code = tl.load(blocks + place, mask=inside, other=0).to(tl.int16)
        weight = operand_of_bits(((code & 0x80) << 8) | ((code & 0x7F) << 4))
    else:
        weight = nvfp4_at(blocks, at, row, k0 // 128, TILES, CHUNKS, BN, BK)
    return weight.to(OPERAND)


@triton.jit
def nvfp4_at(
    blocks, at, row, chunk0, TILES: tl.constexpr, CHUNKS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """[BN, BK] weights times their block scales, in the order of `place_of`."""
    couple = tl.arange(0, BK // 16)
    chunk = chunk0 + couple // 8
    place = (
        (at * CHUNKS)[:, None] * 288
        + chunk[None, :] * 288
        + (row % 16)[:, None] * 16
        + (couple % 8 * 2)[None, :]
    )
    inside = (at < TILES)[:, None] & (chunk < CHUNKS)[None, :]
    words = blocks.to(tl.pointer_type(tl.uint32), bitcast=True) + place
    even = tl.load(words, mask=inside, other=0)
    odd = tl.load(words + 1, mask=inside, other=0)
    merged = (even & LEFT) | (((odd << 2) | (odd >> 30)) & NOT_LEFT)
    first = _four(_numbers(even, 0), _numbers(odd, 0), _numbers(even, 10), _numbers(odd, 10))
    second = _four(_numbers(even, 4), _numbers(odd, 4), _numbers(merged, 6), _numbers(merged, 12))
    weight = tl.join(first, second)  # [BN, couples, first or second, word, group parity, pair]
    group = tl.arange(0, BK // 16)
    place = (at * CHUNKS)[:, None] * 1152 + (chunk0 + group // 8)[None, :] * 1152 + 1024
    place += (row % 16)[:, None] * 8 + (group % 2 * 4 + group % 8 // 2)[None, :]
    inside = (at < TILES)[:, None] & (chunk0 + group // 8 < CHUNKS)[None, :]
    code = tl.load(blocks + place, mask=inside, other=0).to(tl.int16)
    scale = operand_of_bits((code << 4) + 0x6F00)  # 2^117 times the block scale
    scale = tl.reshape(scale, [BN, BK // 128, 1, 2, 1, 2, 2, 1])
    weight = tl.reshape(weight, [BN, BK // 128, 4, 2, 2, 2, 2, 2])
    return tl.reshape(weight * scale, [BN, BK])


@triton.jit
def _numbers(word, LEFT_BY: tl.constexpr):
    """[..., 2] operands: what a rotation of the word brings to the bits of two numbers."""
    if LEFT_BY > 0:
        word = (word << LEFT_BY) | (word >> (32 - LEFT_BY))
    word = word & VALUES
    return tl.join(operand_of_bits((word & 0xFFFF).to(tl.int16)), operand_of_bits((word >> 16).to(tl.int16)))


@triton.jit
def _four(even0, odd0, even1, odd1):
    return tl.join(tl.join(even0, odd0), tl.join(even1, odd1))


@triton.jit
def product(
    x, blocks, row_scale, block_scale, tile, pair, live, expert, scale_row,
    X_STRIDE: tl.constexpr, TILES: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr,
    SCALE_ROWS: tl.constexpr, SCALE_COLUMNS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    FORMAT: tl.constexpr,
):  # fmt: skip
    """[BN, PAIRS] float32: rows of one expert's matrix times rows `pair` of x, with all scales."""
    row = tile * 16 + tl.arange(0, BN)
    k = tl.arange(0, BK)
    blocks += expert.to(tl.int64) * (TILES * CHUNKS * (1152 if FORMAT == 2 else 1024))
    total = tl.zeros([BN, PAIRS], dtype=tl.float32)
    for k0 in range(0, CHUNKS * CHUNK, BK):
        inside = live[None, :]
        if CHUNKS * CHUNK % BK != 0:
            inside = inside & (k0 + k < CHUNKS * CHUNK)[:, None]
        right = tl.load(x + pair[None, :] * X_STRIDE + (k0 + k)[:, None], mask=inside, other=0.0)
        left = weights_at(blocks, tile, k0, TILES, CHUNKS, BN, BK, FORMAT)
        if SCALE_COLUMNS > 0:
            place = (expert * SCALE_ROWS + scale_row) * SCALE_COLUMNS + k0 // 128
            total += tl.dot(left, right.to(OPERAND)) * tl.load(block_scale + place)[:, None]
        else:
            total = tl.dot(left, right.to(OPERAND), total)
    if row_scale is not None:
        scale = tl.load(row_scale + expert * (TILES * 16) + row, mask=row < TILES * 16, other=0.0)
        total = total * scale[:, None]
    return undone(total, FORMAT)


@triton.jit
def pairs_of(block, listed, offsets, rows, LIST: tl.constexpr):
    """Expert, first pair and number of pairs of a block of pairs."""
    if LIST == 0:
        entry = tl.load(listed + 1 + block)
        expert = entry // 65536
        first = tl.load(offsets + expert) + entry % 65536 * PAIRS
        count = tl.minimum(tl.load(offsets + expert + 1) - first, PAIRS)
    elif LIST == 1:
        expert = tl.load(listed + 1 + block)
        first = block * ROOM
        count = rows
    else:
        expert = block * 0
        first = block * PAIRS
        count = tl.minimum(rows - first, PAIRS)
    return expert, first, count


@triton.jit
def prepare_rows(
    residual, norm, prepared, factor, epsilon, stride,
    K: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """Rows times the norm's weight as the products read them, and 1 / rms of each; without a norm 1."""
    row = tl.program_id(0)
    square = tl.zeros([BLOCK], dtype=tl.float32)
    for k0 in range(0, WIDTH, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        value = tl.load(residual + row * stride + k, mask=k < K, other=0.0).to(tl.float32)
        square += value * value
        if norm is not None:
            value = value * tl.load(norm + k, mask=k < K, other=0.0)
        place = prepared + row * WIDTH + place_of(k, FORMAT)
        tl.store(place, to_bfloat16(raised(value, FORMAT)), mask=k < WIDTH)
    if norm is not None:
        tl.store(factor + row, tl.rsqrt(tl.sum(square, axis=0) / K + epsilon))
    else:
        tl.store(factor + row, 1.0)


@triton.jit
def gate_up(
    prepared, factor, blocks, row_scale, block_scale, listed, offsets, pair_rows, hidden, rows,
    X_STRIDE: tl.constexpr, H_STRIDE: tl.constexpr, INTERMEDIATE: tl.constexpr, TILES: tl.constexpr,
    CHUNKS: tl.constexpr, CHUNK: tl.constexpr, SCALE_ROWS: tl.constexpr, SCALE_COLUMNS: tl.constexpr,
    LIST: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FORMAT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """silu(gate) * up of one block of pairs, BN / 2 of its activations; zeros up to WIDTH."""
    block = tl.program_id(1)
    if LIST != 2:  # noqa: SIM102 - decided at compile time: there is no list to load from
        if block >= tl.load(listed):
            return
    expert, first, count = pairs_of(block, listed, offsets, rows, LIST)
    lane = tl.arange(0, PAIRS)
    live = lane < count
    if LIST == 0:
        source = tl.load(pair_rows + first + lane, mask=live, other=0)
    elif LIST == 1:
        source = lane
    else:
        source = first + lane
    tile = tl.program_id(0) * (BN // 16)
    row = tile * 16 + tl.arange(0, BN)
    feature = tl.minimum(row // 16 * 8 + row % 8, INTERMEDIATE - 1)
    scale_row = feature // 128 + row % 16 // 8 * (SCALE_ROWS // 2)
    total = product(
        prepared, blocks, row_scale, block_scale, tile, source, live, expert, scale_row, X_STRIDE, TILES,
        CHUNKS, CHUNK, SCALE_ROWS, SCALE_COLUMNS, BN, BK, FORMAT,
    )  # fmt: skip
    total = total * tl.load(factor + source, mask=live, other=0.0)[None, :]
    split = tl.permute(tl.reshape(total, [BN // 16, 2, 8, PAIRS]), [0, 2, 3, 1])
    gate, up = tl.split(split)
    gate, up = tl.reshape(gate, [BN // 2, PAIRS]), tl.reshape(up, [BN // 2, PAIRS])
    activated = gate / (1.0 + tl.exp(-gate)) * up
    feature = tile * 8 + tl.arange(0, BN // 2)
    activated = tl.where((feature < INTERMEDIATE)[:, None], activated, 0.0)
    place = (first + lane)[None, :] * H_STRIDE + place_of(feature, FORMAT)[:, None]
    inside = live[None, :] & (feature < WIDTH)[:, None]
    tl.store(hidden + place, to_bfloat16(raised(activated, FORMAT)), mask=inside)


@triton.jit
def down(
    hidden, blocks, row_scale, block_scale, listed, offsets, out, rows,
    H_STRIDE: tl.constexpr, OUT: tl.constexpr, TILES: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr,
    SCALE_ROWS: tl.constexpr, SCALE_COLUMNS: tl.constexpr, LIST: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """BN outputs of one block of pairs, not yet weighted."""
    block = tl.program_id(1)
    if LIST != 2:  # noqa: SIM102 - decided at compile time: there is no list to load from
        if block >= tl.load(listed):
            return
    expert, first, count = pairs_of(block, listed, offsets, rows, LIST)
    lane = tl.arange(0, PAIRS)
    live = lane < count
    tile = tl.program_id(0) * (BN // 16)
    row = tile * 16 + tl.arange(0, BN)
    scale_row = tl.minimum(row, OUT - 1) // 128
    total = product(
        hidden, blocks, row_scale, block_scale, tile, first + lane, live, expert, scale_row, H_STRIDE, TILES,
        CHUNKS, CHUNK, SCALE_ROWS, SCALE_COLUMNS, BN, BK, FORMAT,
    )  # fmt: skip
    place = (first + lane)[None, :] * OUT + row[:, None]
    tl.store(out + place, total, mask=live[None, :] & (row < OUT)[:, None])


@triton.jit
def combine(
    residual, routed, shared, listed, pair_weights, pair_places, shared_weight, stride,
    OUT: tl.constexpr, TOP: tl.constexpr, LIST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """residual += routed experts by weight (in the order of list or choice), then the shared one."""
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < OUT
    total = tl.zeros([BLOCK], dtype=tl.float32)
    if LIST == 0:
        for choice in range(TOP):
            place = tl.load(pair_places + row * TOP + choice)
            value = tl.load(routed + place * OUT + column, mask=inside, other=0.0)
            total += value * tl.load(pair_weights + place)
    else:
        for entry in range(tl.load(listed)):
            weight = tl.load(pair_weights + entry * ROOM + row)
            total += tl.load(routed + (entry * ROOM + row) * OUT + column, mask=inside, other=0.0) * weight
    if shared is not None:
        value = tl.load(shared + row * OUT + column, mask=inside, other=0.0)
        total += value * tl.load(shared_weight + row)
    place = residual + row * stride + column
    total += tl.load(place, mask=inside, other=0.0).to(tl.float32)
    tl.store(place, to_bfloat16(total), mask=inside)
