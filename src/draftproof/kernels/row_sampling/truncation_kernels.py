"""How deep a row goes: the exact value at which top-k and top-p cut, found in four launches.

Scaled logits (largest subtracted, divided by the temperature) are 0 or negative, so that depth, the bits
without the sign, is an integer that grows as they fall, and a cut is a depth.

1. `block_maxima`: each block's largest logit; what a block cannot reach it does not look for.
2. `narrow`, three times: how many candidates and how much probability lie no deeper than each of a few depths
   leaves the one range between two of them that holds the cut. At least k logits lie no deeper than the k-th
   largest of the blocks' largest ones, so that most blocks have nothing to say about a top-k.
3. `find_cut`: the depths in that range (for top-k, all down to it) become a list in the order of columns, on
   which all is compared with all, or the range is halved until one number is left.

Rows that neither k nor p cuts are left out; min-p needs no search.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.row_sampling.triton_kernels import (
    DEEPEST,
    INFINITY,
    depth_of,
    finite,
    is_last,
    load_block,
    row_maximum,
)


@triton.jit
def block_maxima(logits, stride, maxima, vocabulary, blocks, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """[rows, blocks]: the largest logit of a block; +inf where it holds NaN."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    block, row = tl.program_id(0), tl.program_id(1)
    _, x = load_block(logits + row.to(tl.int64) * stride, block, vocabulary, BLOCK)
    tl.store(maxima + row * blocks + block, tl.max(tl.where(x != x, INFINITY, x), 0))


@triton.jit
def is_searched(slot, heat, top_k, top_p, largest, vocabulary):
    """Whether a row's cut has to be found."""
    cut = (tl.load(top_k + slot) < vocabulary) | (tl.load(top_p + slot) < 1.0)
    return cut & (heat > 0) & finite(largest)


@triton.jit
def depths_of_block(logits, block, largest, heat, vocabulary, BLOCK: tl.constexpr):
    """A block's depths; columns behind the vocabulary are infinitely deep."""
    _, x = load_block(logits, block, vocabulary, BLOCK)
    return depth_of(tl.div_rn(x - largest, heat))


@triton.jit
def weights_of(depth):
    """Probabilities, unnormalised, of scaled logits, float64; 0 for infinitely deep ones."""
    return tl.exp(-(depth.to(tl.float32, bitcast=True).to(tl.float64)))


@triton.jit
def threshold(index, low, high, STEPS: tl.constexpr):
    """Depth number `index` of STEPS: rising from `low` to `high`.

    From nothing to everything they are those of -0.5, -1, -1.5 .. of scaled logits, then wider apart.
    """
    step = index.to(tl.float32)
    wide = depth_of(-(0.5 * step + tl.maximum(step - 8.0, 0.0)))
    even = low + ((high - low).to(tl.int64) * index // (STEPS - 1)).to(tl.int32)
    inner = tl.where((high == DEEPEST) & (low < 0) & (index > 0), wide, even)
    return tl.where(index == STEPS - 1, high, inner)


@triton.jit
def depth_of_kth_block(maxima, k, largest, heat, blocks, BLOCKS: tl.constexpr):
    """The depth of the k-th largest of the blocks' largest logits."""
    each = tl.arange(0, BLOCKS)
    found = tl.load(maxima + each, mask=each < blocks, other=-INFINITY)
    as_large = tl.sum((found[None, :] >= found[:, None]).to(tl.int32), 1)
    kth = tl.max(tl.where(as_large >= k, found, -INFINITY), 0)
    return tl.minimum(depth_of(tl.div_rn(kth - largest, heat)), DEEPEST)


@triton.jit
def narrow(
    logits, stride, slots, temperature, top_k, top_p, maxima, counts, masses, offsets, ranges, shares,
    arrivals, vocabulary, rows, blocks,
    FIRST: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Count a block at STEPS depths; the row's last program keeps the range that holds the cut.

    `ranges`: per row, the depth below the cut, the least depth that may be the cut, and the list's length;
    `shares`: per row, the whole probability and that above the range; `offsets`: per row and block, where a
    block's part of the list begins.
    """
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    block, row = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row // rows)
    heat = tl.load(temperature + slot)
    largest = row_maximum(maxima + row * blocks, blocks, BLOCKS)
    if not is_searched(slot, heat, top_k, top_p, largest, vocabulary):
        return
    by_count = tl.load(top_k + slot) < vocabulary
    low, high = tl.full((), -1, tl.int32), tl.full((), DEEPEST, tl.int32)
    if not FIRST:
        low, high = tl.load(ranges + row * 4), tl.load(ranges + row * 4 + 1)
    elif tl.load(top_k + slot) <= blocks:
        high = depth_of_kth_block(maxima + row * blocks, tl.load(top_k + slot), largest, heat, blocks, BLOCKS)
    counts += row * blocks * STEPS
    masses += row * blocks * STEPS
    reached = depth_of(tl.div_rn(tl.load(maxima + row * blocks + block) - largest, heat)) <= high
    if reached:
        depth = depths_of_block(logits + row.to(tl.int64) * stride, block, largest, heat, vocabulary, BLOCK)
        for index in tl.static_range(STEPS):
            edge = threshold(tl.full((), index, tl.int32), low, high, STEPS)
            tl.store(counts + block * STEPS + index, tl.sum((depth <= edge).to(tl.int32), 0))
        if not by_count:
            weights = weights_of(depth)
            for index in tl.static_range(STEPS):
                edge = threshold(tl.full((), index, tl.int32), low, high, STEPS)
                tl.store(masses + block * STEPS + index, tl.sum(tl.where(depth <= edge, weights, 0.0), 0))
    else:
        steps = tl.arange(0, STEPS)
        tl.store(counts + block * STEPS + steps, steps * 0)
        tl.store(masses + block * STEPS + steps, (steps * 0).to(tl.float64))
    if is_last(arrivals + row, blocks):
        keep_range(
            counts, masses, offsets + row * blocks, ranges + row * 4, shares + row * 2,
            tl.load(top_k + slot), tl.load(top_p + slot), by_count, low, high, blocks, FIRST, STEPS, BLOCKS,
        )  # fmt: skip


@triton.jit
def keep_range(
    counts, masses, offsets, ranges, shares, k, p, by_count, low, high, blocks,
    FIRST: tl.constexpr, STEPS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Choose the first depth that has enough, and lay out the list of what lies between it and the last."""
    each, steps = tl.arange(0, BLOCKS), tl.arange(0, STEPS)
    places = each[:, None] * STEPS + steps[None, :]
    inside = (each < blocks)[:, None] & (steps >= 0)[None, :]
    count = tl.load(counts + places, mask=inside, other=0, cache_modifier=".cg")
    enough = tl.sum(count, 0) >= k
    mass = tl.zeros((STEPS,), tl.float64)
    if not by_count:
        mass = tl.sum(tl.load(masses + places, mask=inside, other=0.0, cache_modifier=".cg"), 0)
        whole = tl.load(shares)
        if FIRST:
            whole = tl.sum(tl.where(steps == STEPS - 1, mass, 0.0), 0)
            tl.store(shares, whole)
        enough = mass >= p * whole
    # Where nothing has enough, as with fewer finite logits than k, the last depth admits all.
    chosen = tl.min(tl.where(enough & (steps > 0), steps, STEPS - 1), 0)
    tl.store(shares + 1, tl.sum(tl.where(steps == chosen - 1, mass, 0.0), 0))
    upper = tl.sum(tl.where(steps[None, :] == chosen, count, 0), 1)
    if not by_count:
        upper -= tl.sum(tl.where(steps[None, :] == chosen - 1, count, 0), 1)
    tl.store(offsets + each, tl.cumsum(upper, 0) - upper, mask=each < blocks)
    tl.debug_barrier()
    tl.store(ranges, threshold(chosen - 1, low, high, STEPS))
    tl.store(ranges + 1, threshold(chosen, low, high, STEPS))
    tl.store(ranges + 2, tl.sum(upper, 0))


@triton.jit
def find_cut(
    logits, stride, slots, temperature, top_k, top_p, maxima, offsets, ranges, shares, listed, list_stride,
    limits, arrivals, vocabulary, rows, blocks,
    SHORT: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """List a block's depths; the row's last program finds the cut among all of them."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    block, row = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row // rows)
    heat = tl.load(temperature + slot)
    largest = row_maximum(maxima + row * blocks, blocks, BLOCKS)
    if not is_searched(slot, heat, top_k, top_p, largest, vocabulary):
        return
    by_count = tl.load(top_k + slot) < vocabulary
    low, high = tl.load(ranges + row * 4), tl.load(ranges + row * 4 + 1)
    above = tl.where(by_count, -1, low)
    listed += row.to(tl.int64) * list_stride
    if depth_of(tl.div_rn(tl.load(maxima + row * blocks + block) - largest, heat)) <= high:
        depth = depths_of_block(logits + row.to(tl.int64) * stride, block, largest, heat, vocabulary, BLOCK)
        inside = (depth > above) & (depth <= high)
        to = tl.load(offsets + row * blocks + block) + tl.cumsum(inside.to(tl.int32), 0) - 1
        tl.store(listed + to, depth, mask=inside)
    if is_last(arrivals + row, blocks):
        length = tl.load(ranges + row * 4 + 2)
        k, p = tl.load(top_k + slot), tl.load(top_p + slot)
        whole, before = tl.load(shares + row * 2), tl.load(shares + row * 2 + 1)
        if length <= SHORT:
            high = cut_of_short(listed, length, high, k, p, whole, before, by_count, SHORT)
        else:
            high = cut_of_long(listed, length, low, high, k, p, whole, before, by_count, PART)
        tl.store(limits + row, high)


@triton.jit
def cut_of_short(listed, length, high, k, p, whole, before, by_count, SHORT: tl.constexpr):
    """The cut, all compared with all."""
    lanes = tl.arange(0, SHORT)
    mask = lanes < length
    depth = tl.load(listed + lanes, mask=mask, other=DEEPEST, cache_modifier=".cg")
    no_deeper = depth[None, :] <= depth[:, None]
    if by_count:
        count = tl.sum((no_deeper & mask[None, :]).to(tl.int32), 1)
        high = tl.min(tl.where(mask & (count >= k), depth, high), 0)
    if p < 1.0:
        weights = tl.where(mask & (depth <= high), weights_of(depth), 0.0)
        if by_count:
            whole = tl.sum(weights, 0)
            before = before * 0.0
        mass = tl.sum(tl.where(no_deeper, weights[None, :], 0.0), 1)
        high = tl.min(tl.where(mask & (mass >= p * whole - before), depth, high), 0)
    return high


@triton.jit
def cut_of_long(listed, length, low, high, k, p, whole, before, by_count, PART: tl.constexpr):
    """The cut, by halving the range between `low` and `high`."""
    if by_count:
        if k <= length:
            high = cut_by_count(listed, length, low, high, k, PART)
        before = before * 0.0
        low = tl.full((), -1, tl.int32)
        if p < 1.0:
            whole = mass_down_to(listed, length, high, PART)
    if p < 1.0:
        high = cut_by_mass(listed, length, low, high, p * whole - before, PART)
    return high


@triton.jit
def cut_by_count(listed, length, low, high, k, PART: tl.constexpr):
    """The least depth above `low` that k listed depths do not exceed."""
    lanes = tl.arange(0, PART)
    while low + 1 < high:
        middle = low + (high - low) // 2
        total = tl.zeros((PART,), tl.int32)
        for begin in range(0, length, PART):
            mask = begin + lanes < length
            depth = tl.load(listed + begin + lanes, mask=mask, other=DEEPEST, cache_modifier=".cg")
            total += (mask & (depth <= middle)).to(tl.int32)
        if tl.sum(total, 0) >= k:
            high = middle
        else:
            low = middle
    return high


@triton.jit
def mass_down_to(listed, length, limit, PART: tl.constexpr):
    """The probability, unnormalised, of the listed depths that do not exceed a limit."""
    lanes = tl.arange(0, PART)
    total = tl.zeros((PART,), tl.float64)
    for begin in range(0, length, PART):
        mask = begin + lanes < length
        depth = tl.load(listed + begin + lanes, mask=mask, other=DEEPEST, cache_modifier=".cg")
        total += tl.where(mask & (depth <= limit), weights_of(depth), 0.0)
    return tl.sum(total, 0)


@triton.jit
def cut_by_mass(listed, length, low, high, mass, PART: tl.constexpr):
    """The least depth above `low` down to which the listed ones have this probability."""
    while low + 1 < high:
        middle = low + (high - low) // 2
        if mass_down_to(listed, length, middle, PART) >= mass:
            high = middle
        else:
            low = middle
    return high
