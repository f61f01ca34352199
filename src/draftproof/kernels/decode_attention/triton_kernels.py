"""The kernels of `triton.py`."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_operands import OPERAND, to_bfloat16

# Below any score, and finite: the difference of two of them is a number.
LOWEST: tl.constexpr = tl.constexpr(-1.0e30)


@triton.jit
def _normed_and_rotated(
    places, row_mask, positions, weight, epsilon, cos, sin, HEAD_DIM: tl.constexpr, ROTATED: tl.constexpr
):
    """Heads at `places` ([heads] pointers to their first dimension), normed and rotated: BF16."""
    d = tl.arange(0, HEAD_DIM)
    turning = d < ROTATED
    swapped = tl.where(turning, (d + ROTATED // 2) % ROTATED, d)
    mask = row_mask[:, None] & (d < HEAD_DIM)[None, :]
    x = tl.load(places[:, None] + d[None, :], mask=mask, other=0.0).to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(x * x, 1) / HEAD_DIM + epsilon)
    normed = to_bfloat16(x * factor[:, None] * tl.load(weight + d)[None, :])
    other = tl.load(places[:, None] + swapped[None, :], mask=mask & turning[None, :], other=0.0).to(
        tl.float32
    )
    other = to_bfloat16(other * factor[:, None] * tl.load(weight + swapped)[None, :])
    angles = positions[:, None].to(tl.int64) * ROTATED + d[None, :]
    angle_mask = row_mask[:, None] & turning[None, :]
    turned = normed.to(tl.float32) * tl.load(cos + angles, mask=angle_mask, other=1.0)
    turned += other.to(tl.float32) * tl.load(sin + angles, mask=angle_mask, other=0.0)
    return to_bfloat16(turned)


@triton.jit
def _add_block(q, k, v, seen, scale, largest, weight_sum, weighted):
    """One block of positions into the running softmax; `seen` broadcasts to [tile, block]."""
    scores = tl.where(seen, tl.dot(q.to(OPERAND), tl.trans(k.to(OPERAND))) * scale, LOWEST)
    now = tl.maximum(largest, tl.max(scores, 1))
    shrink = tl.exp2(largest - now)
    weights = tl.where(seen, tl.exp2(scores - now[:, None]), 0.0)
    weight_sum = weight_sum * shrink + tl.sum(weights, 1)
    weighted = tl.dot(to_bfloat16(weights).to(OPERAND), v.to(OPERAND), weighted * shrink[:, None])
    return now, weight_sum, weighted


@triton.jit
def _load_block(
    keys,
    values,
    pages,
    start,
    end,
    head_offset,
    KEY_WIDTH: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Keys and values of BLOCK positions from `start` on, zeros from `end` on."""
    n = start + tl.arange(0, BLOCK)
    d = tl.arange(0, HEAD_DIM)
    seen = n < end
    page = tl.load(pages + n // PAGE_SIZE, mask=seen, other=0).to(tl.int64)
    place = (page * PAGE_SIZE + n % PAGE_SIZE) * KEY_WIDTH + head_offset
    k = tl.load(keys + place[:, None] + d[None, :], mask=seen[:, None], other=0.0)
    v = tl.load(values + place[:, None] + d[None, :], mask=seen[:, None], other=0.0)
    return k, v, seen[None, :]


@triton.jit
def _share_of(length, splits, SHARE: tl.constexpr):
    """Positions that each program of a sequence handles; the last of several handles none."""
    older = tl.maximum(splits - 1, 1)
    return tl.maximum(tl.cdiv(tl.cdiv(length, older), SHARE), 1) * SHARE


@triton.jit
def attend_share(
    projected,
    projected_stride,
    query_weight,
    key_weight,
    cos,
    sin,
    angle_count,
    keys,
    values,
    slots,
    lengths,
    page_table,
    pages_each,
    row_index,
    partial,
    statistics,
    out,
    out_stride,
    query_epsilon,
    key_epsilon,
    scale,
    splits,
    HEADS: tl.constexpr,
    KEY_VALUE_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTATED: tl.constexpr,
    GATED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    SELECTED: tl.constexpr,
    GROUP_ROOM: tl.constexpr,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    SHARED: tl.constexpr,
    SHARE: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Grid (splits, key/value heads * tiles, batch); arguments as `reference.decode_attention`."""
    GROUP: tl.constexpr = HEADS // KEY_VALUE_HEADS
    QUERY_ROWS: tl.constexpr = 1 if SELECTED else ROWS
    HEAD_STRIDE: tl.constexpr = HEAD_DIM * 2 if GATED else HEAD_DIM
    QUERY_WIDTH: tl.constexpr = HEADS * HEAD_STRIDE
    KEY_WIDTH: tl.constexpr = KEY_VALUE_HEADS * HEAD_DIM
    NEW: tl.constexpr = 16  # Rows of a window, padded to what the matrix units take.
    split, sequence = tl.program_id(0), tl.program_id(2)
    kv_head, tile = tl.program_id(1) // TILES, tl.program_id(1) % TILES
    if DEPENDENT:
        gdc_launch_dependents()
        if not EARLY:
            gdc_wait()
    slot = tl.load(slots + sequence)
    length = tl.load(lengths + slot)
    share = _share_of(length, splits, SHARE)
    begin = split * share
    end = tl.minimum(begin + share, tl.minimum(length, pages_each * PAGE_SIZE))
    if (begin >= end) & (split != splits - 1):
        return
    pages = page_table + slot.to(tl.int64) * pages_each
    if EARLY:
        # The past is settled: its first block is on its way while the projections are being made.
        k, v, seen = _load_block(
            keys, values, pages, begin, end, kv_head * HEAD_DIM, KEY_WIDTH, HEAD_DIM, PAGE_SIZE, BLOCK
        )
        if DEPENDENT:
            gdc_wait()

    m = tile * TILE + tl.arange(0, TILE)
    output_row = m // GROUP_ROOM
    row = output_row
    if SELECTED:
        row = output_row * 0 + tl.load(row_index + sequence)
    head = kv_head * GROUP + m % GROUP_ROOM
    real = (output_row < QUERY_ROWS) & (m % GROUP_ROOM < GROUP)
    position = tl.minimum(length + row, angle_count - 1)
    first = projected + (sequence * ROWS + row).to(tl.int64) * projected_stride
    query = first + head * HEAD_STRIDE
    q = _normed_and_rotated(query, real, position, query_weight, query_epsilon, cos, sin, HEAD_DIM, ROTATED)

    d = tl.arange(0, HEAD_DIM)
    largest = tl.full([TILE], LOWEST, tl.float32)
    weight_sum = tl.zeros([TILE], tl.float32)
    weighted = tl.zeros([TILE, HEAD_DIM], tl.float32)
    if EARLY:
        largest, weight_sum, weighted = _add_block(q, k, v, seen, scale, largest, weight_sum, weighted)
        begin += BLOCK
    for start in tl.range(begin, end, BLOCK, num_stages=STAGES):
        k, v, seen = _load_block(
            keys, values, pages, start, end, kv_head * HEAD_DIM, KEY_WIDTH, HEAD_DIM, PAGE_SIZE, BLOCK
        )
        largest, weight_sum, weighted = _add_block(q, k, v, seen, scale, largest, weight_sum, weighted)

    if split == splits - 1:
        j = tl.arange(0, NEW)
        new = j < ROWS
        key = (
            projected
            + (sequence * ROWS + j).to(tl.int64) * projected_stride
            + QUERY_WIDTH
            + kv_head * HEAD_DIM
        )
        new_position = length + j
        angle_row = tl.minimum(new_position, angle_count - 1)
        new_k = _normed_and_rotated(key, new, angle_row, key_weight, key_epsilon, cos, sin, HEAD_DIM, ROTATED)
        new_v = tl.load(key[:, None] + KEY_WIDTH + d[None, :], mask=new[:, None], other=0.0)
        if tile == 0:
            fits = new & (new_position // PAGE_SIZE < pages_each)
            page = tl.load(pages + new_position // PAGE_SIZE, mask=fits, other=0).to(tl.int64)
            place = (page * PAGE_SIZE + new_position % PAGE_SIZE) * KEY_WIDTH + kv_head * HEAD_DIM
            tl.store(keys + place[:, None] + d[None, :], new_k, mask=fits[:, None])
            tl.store(values + place[:, None] + d[None, :], new_v, mask=fits[:, None])
        allowed = (j[None, :] <= row[:, None]) & new[None, :]
        largest, weight_sum, weighted = _add_block(
            q, new_k, new_v, allowed, scale, largest, weight_sum, weighted
        )

    out_row = sequence * QUERY_ROWS + output_row
    dims = d[None, :]
    if not SHARED:
        attended = weighted / weight_sum[:, None]
        if GATED:
            gate = tl.load(query[:, None] + HEAD_DIM + dims, mask=real[:, None], other=0.0).to(tl.float32)
            attended = attended / (1.0 + tl.exp(-gate))
        target = out + out_row.to(tl.int64)[:, None] * out_stride + head[:, None] * HEAD_DIM + dims
        tl.store(target, to_bfloat16(attended), mask=real[:, None])
    else:
        plane = tl.num_programs(2) * QUERY_ROWS * HEADS
        place = split * plane + out_row * HEADS + head
        tl.store(statistics + place, largest, mask=real)
        tl.store(statistics + splits * plane + place, weight_sum, mask=real)
        tl.store(partial + place.to(tl.int64)[:, None] * HEAD_DIM + dims, weighted, mask=real[:, None])


@triton.jit
def merge_shares(
    projected,
    projected_stride,
    slots,
    lengths,
    row_index,
    partial,
    statistics,
    out,
    out_stride,
    splits,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    SELECTED: tl.constexpr,
    SHARE: tl.constexpr,
    CHUNK: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Grid (output rows, heads): add the shares in order, divide, gate."""
    QUERY_ROWS: tl.constexpr = 1 if SELECTED else ROWS
    out_row, head = tl.program_id(0), tl.program_id(1)
    sequence, row = out_row // QUERY_ROWS, out_row % QUERY_ROWS
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    if SELECTED:
        row = tl.load(row_index + sequence)
    length = tl.load(lengths + tl.load(slots + sequence))
    older = tl.cdiv(length, _share_of(length, splits, SHARE))
    plane = tl.num_programs(0) * HEADS
    place = out_row * HEADS + head
    d = tl.arange(0, HEAD_DIM)
    last = place + (splits - 1) * plane
    largest = tl.load(statistics + last)
    weight_sum = tl.load(statistics + splits * plane + last)
    weighted = tl.load(partial + last.to(tl.int64) * HEAD_DIM + d)
    for start in range(0, older, CHUNK):
        split = start + tl.arange(0, CHUNK)
        used = split < older
        places = place + split * plane
        largest_of = tl.load(statistics + places, mask=used, other=LOWEST)
        sum_of = tl.load(statistics + splits * plane + places, mask=used, other=0.0)
        parts = tl.load(
            partial + places.to(tl.int64)[:, None] * HEAD_DIM + d[None, :], mask=used[:, None], other=0.0
        )
        now = tl.maximum(largest, tl.max(largest_of, 0))
        shrink = tl.exp2(largest - now)
        factor = tl.exp2(largest_of - now)
        weight_sum = weight_sum * shrink + tl.sum(sum_of * factor, 0)
        weighted = weighted * shrink + tl.sum(parts * factor[:, None], 0)
        largest = now
    attended = weighted / weight_sum
    if GATED:
        gate = projected + (sequence * ROWS + row).to(tl.int64) * projected_stride
        gate += head * HEAD_DIM * 2 + HEAD_DIM
        attended = attended / (1.0 + tl.exp(-tl.load(gate + d).to(tl.float32)))
    tl.store(out + out_row.to(tl.int64) * out_stride + head * HEAD_DIM + d, to_bfloat16(attended))
