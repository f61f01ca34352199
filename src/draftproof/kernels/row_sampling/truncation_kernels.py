"""Rows cut by top-k, top-p and min-p, exactly: a coarse look, a short list, and one program that picks.

1. `count_coarse`: for each block, how many candidates and how much probability lie above each of a few
   thresholds.
2. `list_candidates`: what lies above the first threshold that is low enough for the row goes to a list, in
   the order of columns.
3. `pick`: on the list, the k-th largest value and the value at which the probabilities reach p are found by
   comparing all with all, or halving the range of float bits, which both end at the exact value; then the
   best of value + noise.

Scaled logits (largest subtracted, divided by the temperature) are 0 or negative, so that depth, the bits
without the sign, is an integer that grows as they fall.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.row_sampling.triton_kernels import (
    INFINITY,
    NO_PLACE,
    finite,
    is_truncated,
    noise_of_tokens,
    row_maximum,
)

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The lowest finite number."""
DEEPEST = tl.constexpr(0x7F7FFFFF)
"""Its depth."""
MASS_MARGIN = tl.constexpr(1.0 + 1e-9)
"""The coarse sums add in another order than `pick`; its list must not end a rounding too early."""


@triton.jit
def edge(index, COARSE: tl.constexpr):
    """Coarse thresholds, falling: finer near the largest value; the last one admits every finite number."""
    near = -0.25 * (index + 1).to(tl.float32)
    far = -0.5 * (index - 7).to(tl.float32)
    return tl.where(index == COARSE - 1, LOWEST, tl.minimum(near, far))


@triton.jit
def count_coarse(
    logits, stride, slots, temperature, top_k, top_p, min_p, maxima, counts, masses,
    vocabulary, rows, blocks,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, COARSE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Candidates and their probabilities at each coarse threshold, of one block."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    block, row = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row // rows)
    heat = tl.load(temperature + slot)
    if not is_truncated(slot, heat, top_k, top_p, min_p, vocabulary):
        return
    largest = row_maximum(maxima + row * blocks, blocks, BLOCKS)
    if not finite(largest):
        return
    columns = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * stride + columns, mask=columns < vocabulary, other=-INFINITY)
    scaled = tl.div_rn(x - largest, heat)
    place = (row * blocks + block) * COARSE
    for index in tl.static_range(COARSE):
        tl.store(
            counts + place + index,
            tl.sum((scaled >= edge(tl.full((), index, tl.int32), COARSE)).to(tl.int32), 0),
        )
    # Probabilities decide only where top-p acts on the whole vocabulary.
    if (tl.load(top_p + slot) < 1.0) & (tl.load(top_k + slot) >= vocabulary):
        weights = tl.exp(scaled.to(tl.float64))
        for index in tl.static_range(COARSE):
            above = scaled >= edge(tl.full((), index, tl.int32), COARSE)
            tl.store(masses + place + index, tl.sum(tl.where(above, weights, 0.0), 0))


@triton.jit
def low_enough(
    row, slot, top_k, top_p, counts, masses, vocabulary, blocks, BLOCKS: tl.constexpr, COARSE: tl.constexpr
):
    """The first coarse threshold above which lies all that the row may keep, and the whole vocabulary's
    probability where top-p acts on it."""
    block, index = tl.arange(0, BLOCKS)[:, None], tl.arange(0, COARSE)[None, :]
    places = (row * blocks + block) * COARSE + index
    mask = (block < blocks) & (index < COARSE)
    k, p = tl.load(top_k + slot), tl.load(top_p + slot)
    chosen = COARSE - 1
    whole = tl.full((), 0.0, tl.float64)
    indices = tl.arange(0, COARSE)
    if k < vocabulary:
        count = tl.sum(tl.load(counts + places, mask=mask, other=0), 0)
        chosen = tl.min(tl.where(count >= k, indices, COARSE - 1), 0)
    elif p < 1.0:
        mass = tl.sum(tl.load(masses + places, mask=mask, other=0.0), 0)
        whole = tl.sum(tl.where(indices == COARSE - 1, mass, 0.0), 0)
        chosen = tl.min(tl.where(mass >= p * whole * MASS_MARGIN, indices, COARSE - 1), 0)
    return chosen, whole


@triton.jit
def list_candidates(
    logits, stride, slots, temperature, top_k, top_p, min_p, maxima,
    counts, masses, values, listed, list_stride, vocabulary, rows, blocks,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, COARSE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Put a block's candidates behind those of the blocks before it."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    block, row = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row // rows)
    heat = tl.load(temperature + slot)
    if not is_truncated(slot, heat, top_k, top_p, min_p, vocabulary):
        return
    largest = row_maximum(maxima + row * blocks, blocks, BLOCKS)
    if not finite(largest):
        return
    chosen, _ = low_enough(row, slot, top_k, top_p, counts, masses, vocabulary, blocks, BLOCKS, COARSE)
    others = tl.arange(0, BLOCKS)
    before = tl.sum(
        tl.load(counts + (row * blocks + others) * COARSE + chosen, mask=others < block, other=0), 0
    )
    columns = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * stride + columns, mask=columns < vocabulary, other=-INFINITY)
    scaled = tl.div_rn(x - largest, heat)
    above = scaled >= edge(chosen, COARSE)
    to = row.to(tl.int64) * list_stride + before + tl.cumsum(above.to(tl.int32), 0) - 1
    tl.store(values + to, scaled, mask=above)
    tl.store(listed + to, columns, mask=above)


@triton.jit
def depth_of(scaled):
    """Bits without the sign: an integer that grows as a number that is not positive falls."""
    return scaled.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def reaches_count(values, length, depth, BLOCK: tl.constexpr):
    """How many listed values lie no deeper."""
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32)
    for begin in range(0, length, BLOCK):
        mask = begin + lanes < length
        each = depth_of(tl.load(values + begin + lanes, mask=mask, other=-INFINITY))
        total += (each <= depth).to(tl.int32)
    return tl.sum(total, 0)


@triton.jit
def reaches_mass(values, length, depth, BLOCK: tl.constexpr):
    """The probability, unnormalised, of the listed values that lie no deeper."""
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float64)
    for begin in range(0, length, BLOCK):
        mask = begin + lanes < length
        scaled = tl.load(values + begin + lanes, mask=mask, other=-INFINITY)
        total += tl.where(depth_of(scaled) <= depth, tl.exp(scaled.to(tl.float64)), 0.0)
    return tl.sum(total, 0)


@triton.jit
def limit_of_long(values, length, k, p, whole, vocabulary, BLOCK: tl.constexpr):
    """The deepest depth that a row keeps: the range of float bits is halved until one number is left."""
    limit = tl.full((), DEEPEST, tl.int32)
    if k < length:
        low, high = tl.full((), 0, tl.int32), limit
        while low < high:
            middle = low + (high - low) // 2
            if reaches_count(values, length, middle, BLOCK) >= k:
                high = middle
            else:
                low = middle + 1
        limit = low
    if p < 1.0:
        if k < vocabulary:
            whole = reaches_mass(values, length, limit, BLOCK)
        low, high = tl.full((), 0, tl.int32), limit
        while low < high:
            middle = low + (high - low) // 2
            if reaches_mass(values, length, middle, BLOCK) >= p * whole:
                high = middle
            else:
                low = middle + 1
        limit = low
    return limit


@triton.jit
def limit_of_short(values, length, k, p, whole, vocabulary, SHORT: tl.constexpr):
    """The same for a list that fits into one comparison of everything with everything."""
    lanes = tl.arange(0, SHORT)
    mask = lanes < length
    scaled = tl.load(values + lanes, mask=mask, other=-INFINITY)
    depth = depth_of(scaled)
    no_deeper = depth[None, :] <= depth[:, None]
    limit = tl.full((), DEEPEST, tl.int32)
    if k < length:
        count = tl.sum(no_deeper.to(tl.int32), 1)
        limit = tl.min(tl.where(count >= k, depth, DEEPEST), 0)
    if p < 1.0:
        weights = tl.where(depth <= limit, tl.exp(scaled.to(tl.float64)), 0.0)
        if k < vocabulary:
            whole = tl.sum(weights, 0)
        mass = tl.sum(tl.where(no_deeper, weights[None, :], 0.0), 1)
        limit = tl.minimum(limit, tl.min(tl.where(mass >= p * whole, depth, DEEPEST), 0))
    return limit


@triton.jit
def pick(
    slots, lengths, temperature, top_k, top_p, min_p, seeds, token_ids,
    maxima, counts, masses, values, listed, list_stride, out, vocabulary, rows, blocks, by_slot,
    MAPPED: tl.constexpr, BLOCK: tl.constexpr, SHORT: tl.constexpr, BLOCKS: tl.constexpr,
    COARSE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The token of a truncated row, from its list."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    slot = tl.load(slots + row // rows)
    heat = tl.load(temperature + slot)
    if not is_truncated(slot, heat, top_k, top_p, min_p, vocabulary):
        return
    if not finite(row_maximum(maxima + row * blocks, blocks, BLOCKS)):
        tl.store(out + tl.where(by_slot > 0, slot * by_slot, row), -1)
        return
    chosen, whole = low_enough(row, slot, top_k, top_p, counts, masses, vocabulary, blocks, BLOCKS, COARSE)
    others = tl.arange(0, BLOCKS)
    length = tl.sum(
        tl.load(counts + (row * blocks + others) * COARSE + chosen, mask=others < blocks, other=0), 0
    )
    values += row.to(tl.int64) * list_stride
    listed += row.to(tl.int64) * list_stride
    k, p = tl.load(top_k + slot), tl.load(top_p + slot)
    if length <= SHORT:
        limit = limit_of_short(values, length, k, p, whole, vocabulary, SHORT)
    else:
        limit = limit_of_long(values, length, k, p, whole, vocabulary, BLOCK)
    floor = tl.full((), LOWEST, tl.float32)
    if tl.load(min_p + slot) > 0.0:
        floor = tl.log(tl.load(min_p + slot)).to(tl.float32)
    seed = tl.load(seeds + slot)
    position = tl.load(lengths + slot) + row % rows + 1
    lanes = tl.arange(0, BLOCK)
    best = tl.full((), -INFINITY, tl.float32)
    token = tl.full((), -1, tl.int32)
    for begin in range(0, length, BLOCK):
        mask = begin + lanes < length
        scaled = tl.load(values + begin + lanes, mask=mask, other=-INFINITY)
        tokens = tl.load(listed + begin + lanes, mask=mask, other=0)
        if MAPPED:
            tokens = tl.load(token_ids + tokens, mask=mask, other=0)
        kept = mask & (depth_of(scaled) <= limit) & (scaled >= floor)
        scores = tl.where(kept, scaled + noise_of_tokens(seed, position, tokens), -INFINITY)
        here = tl.max(scores, 0)
        # Lists run in the order of ids: of equal scores the first one stays.
        if here > best:
            best = here
            token = tl.min(tl.where(scores == here, tokens, NO_PLACE), 0)
    tl.store(out + tl.where(by_slot > 0, slot * by_slot, row), token)
