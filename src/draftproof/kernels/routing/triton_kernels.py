"""Routing in Triton: the router's product, the choice of a row, the list of distinct experts, sorted pairs.

The product uses the matrix units, 16 experts and 16 rows a program. Choice and sort work on whole masks
[rows, experts] in registers, by integer counts and prefix sums, so that nothing depends on an order of
execution.
"""

from __future__ import annotations

import triton
import triton.language as tl

from draftproof.kernels.triton_operands import OPERAND, to_bfloat16


@triton.jit
def router_logits(
    x, norm, blocks, out, rows, epsilon, x_stride, out_stride,
    K: tl.constexpr, CHUNKS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = tl.program_id(1) * 16 + tl.arange(0, 16)
    lane = tl.arange(0, 16)
    k0 = tl.arange(0, BK)
    total = tl.zeros([16, 16], dtype=tl.float32)
    square = tl.zeros([16], dtype=tl.float32)
    for start in range(0, CHUNKS * 32, BK):
        k = start + k0
        inside = k < K
        kept = inside[None, :] & (row < rows)[:, None]
        value = tl.load(x + row[:, None] * x_stride + k[None, :], mask=kept, other=0.0).to(tl.float32)
        factor = tl.load(norm + k, mask=inside, other=0.0)
        square += tl.sum(value * value, axis=1)
        scaled = to_bfloat16(value * factor[None, :])
        place = (tile * CHUNKS + k // 32) * 512 + k % 32
        weight = tl.load(
            blocks + place[:, None] + lane[None, :] * 32, mask=(k < CHUNKS * 32)[:, None], other=0.0
        )
        total += tl.dot(scaled.to(OPERAND), weight.to(OPERAND))
    total = total * tl.rsqrt(square / K + epsilon)[:, None]
    column = tile * 16 + lane
    tl.store(out + row[:, None] * out_stride + column[None, :], total, mask=(row < rows)[:, None])


@triton.jit
def sortable(logit):
    """Integers in the order of the floats; NaN below every number."""
    bits = logit.to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return tl.where(logit != logit, -2147483647, key)


@triton.jit
def choose_few_rows(
    logits, distinct, row_weights, shared_weight, rows, stride, listed,
    E: tl.constexpr, W: tl.constexpr, TOP: tl.constexpr, ROWS: tl.constexpr,
    NORMALIZE: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    row, expert = tl.arange(0, ROWS), tl.arange(0, W)
    live = (row < rows)[:, None] & (expert < E)[None, :]
    logit = tl.load(logits + row[:, None] * stride + expert[None, :], mask=live, other=0.0)
    key = tl.where(live, sortable(logit), -2147483648)
    largest = tl.max(tl.where(live & (logit == logit), logit, float("-inf")), axis=1)
    largest = tl.where(row < rows, largest, 0.0)
    chosen = tl.zeros([ROWS, W], dtype=tl.int32)
    for _ in tl.static_range(TOP):
        best = tl.max(key, axis=1)
        first = tl.min(tl.where(key == best[:, None], expert[None, :], W), axis=1)
        hit = expert[None, :] == first[:, None]
        chosen = tl.where(hit, 1, chosen)
        key = tl.where(hit, -2147483648, key)
    chosen = tl.where(live, chosen, 0)
    share = tl.where(live, tl.exp(logit - largest[:, None]), 0.0)
    total = tl.sum(tl.where(chosen == 1, share, 0.0) if NORMALIZE else share, axis=1)
    total = tl.where(row < rows, total, 1.0)
    weight = tl.where(chosen == 1, share / total[:, None], 0.0)
    used = tl.max(chosen, axis=0)
    place = tl.cumsum(used, axis=0) - 1
    count = tl.sum(used, axis=0)
    tl.store(distinct, count)
    tl.store(distinct + 1 + place, expert, mask=used == 1)
    tl.store(row_weights + place[None, :] * ROWS + row[:, None], weight, mask=(used == 1)[None, :])
    behind = (expert >= count) & (expert < listed)
    tl.store(distinct + 1 + expert, tl.zeros([W], dtype=tl.int32), mask=behind)
    nothing = tl.zeros([ROWS, W], dtype=tl.float32)
    tl.store(row_weights + expert[None, :] * ROWS + row[:, None], nothing, mask=behind[None, :])
    gate = tl.zeros([ROWS], dtype=tl.float32)
    if SHARED:
        gate = tl.load(logits + row * stride + E, mask=row < rows, other=0.0)
        gate = tl.where(row < rows, 1.0 / (1.0 + tl.exp(-gate)), 0.0)
    tl.store(shared_weight + row, gate)


@triton.jit
def choose_row(
    logits, chosen, weights, shared_weight, stride,
    E: tl.constexpr, W: tl.constexpr, TOP: tl.constexpr, NORMALIZE: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    expert = tl.arange(0, W)
    live = expert < E
    logit = tl.load(logits + row * stride + expert, mask=live, other=0.0)
    key = tl.where(live, sortable(logit), -2147483648)
    largest = tl.max(tl.where(live & (logit == logit), logit, float("-inf")), axis=0)
    share = tl.where(live, tl.exp(logit - largest), 0.0)
    picked = tl.zeros([W], dtype=tl.int32)
    for choice in tl.static_range(TOP):
        best = tl.max(key, axis=0)
        first = tl.min(tl.where(key == best, expert, W), axis=0)
        hit = expert == first
        picked = tl.where(hit, choice + 1, picked)
        key = tl.where(hit, -2147483648, key)
    total = tl.sum(tl.where(picked > 0, share, 0.0) if NORMALIZE else share, axis=0)
    place = row * TOP + picked - 1
    tl.store(chosen + place, expert, mask=picked > 0)
    tl.store(weights + place, share / total, mask=picked > 0)
    gate = 0.0
    if SHARED:
        gate = 1.0 / (1.0 + tl.exp(-tl.load(logits + row * stride + E)))
    tl.store(shared_weight + row, gate)


@triton.jit
def place_pairs(
    chosen, weights, offsets, pair_rows, pair_weights, pair_places, blocks, rows, room,
    E: tl.constexpr, W: tl.constexpr, TOP: tl.constexpr, ROWS: tl.constexpr, BE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * BE
    row = tl.arange(0, ROWS)
    expert = first + tl.arange(0, BE)
    every = tl.arange(0, W)
    counts = tl.zeros([W], dtype=tl.int32)
    mine = tl.zeros([ROWS, BE], dtype=tl.int32)
    choice = tl.zeros([ROWS, BE], dtype=tl.int32)
    weight = tl.zeros([ROWS, BE], dtype=tl.float32)
    for j in tl.static_range(TOP):
        number = tl.load(chosen + row * TOP + j, mask=row < rows, other=E)
        share = tl.load(weights + row * TOP + j, mask=row < rows, other=0.0)
        counts += tl.histogram(number, W)
        hit = number[:, None] == expert[None, :]
        mine = tl.where(hit, 1, mine)
        choice = tl.where(hit, j, choice)
        weight = tl.where(hit, share[:, None], weight)
    mine = tl.where(expert[None, :] < E, mine, 0)
    earlier = every < first
    block_counts = (counts + BLOCK - 1) // BLOCK
    begin = tl.sum(tl.where(earlier, counts, 0), axis=0)
    block_begin = tl.sum(tl.where(earlier, block_counts, 0), axis=0)
    count = tl.sum(mine, axis=0)
    offset = begin + tl.cumsum(count, axis=0) - count
    place = offset[None, :] + tl.cumsum(mine, axis=0) - 1
    tl.store(offsets + expert, offset, mask=expert < E)
    tl.store(pair_rows + place, tl.broadcast_to(row[:, None], [ROWS, BE]), mask=mine == 1)
    tl.store(pair_weights + place, weight, mask=mine == 1)
    tl.store(pair_places + row[:, None] * TOP + choice, place, mask=mine == 1)
    block_count = (count + BLOCK - 1) // BLOCK
    block_place = block_begin + tl.cumsum(block_count, axis=0) - block_count
    for block in range(tl.cdiv(ROWS, BLOCK)):
        tl.store(blocks + 1 + block_place + block, expert * 65536 + block, mask=block < block_count)
    if first + BE >= E:
        last = tl.sum(tl.where(every < E, block_counts, 0), axis=0)
        tl.store(offsets + E, rows * TOP)
        tl.store(blocks, last)
        for start in range(0, room, W):
            behind = start + every
            zero = tl.zeros([W], dtype=tl.int32)
            tl.store(blocks + 1 + behind, zero, mask=(behind >= last) & (behind < room))
