"""The kernels that look at blocks of a row, and the device functions that all sampling kernels share."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

TOKEN_STREAM = tl.constexpr(1)
"""As in `noise.reference`."""
INFINITY = tl.constexpr(float("inf"))
NO_PLACE = tl.constexpr(2**31 - 1)


@triton.jit
def gumbel_of_word(word):
    """Standard Gumbel numbers from Philox words."""
    uniform = ((word >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07
    return -tl.log(-tl.log(uniform))


@triton.jit
def noise_words(seed, position, counters):
    """The four words of each counter (token id >> 2)."""
    zero = (counters * 0).to(tl.uint32)
    low = zero + position.to(tl.uint32)
    key_low = (seed & 0xFFFFFFFF).to(tl.uint32)
    key_high = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    return tl.philox_impl(
        counters.to(tl.uint32), low, zero, zero + TOKEN_STREAM, zero + key_low, zero + key_high
    )


@triton.jit
def noise_of_tokens(seed, position, tokens):
    """Gumbel noise of tokens in any order: every token pays for its own counter."""
    first, second, third, fourth = noise_words(seed, position, tokens >> 2)
    lane = tokens & 3
    word = tl.where(lane < 2, tl.where(lane == 0, first, second), tl.where(lane == 2, third, fourth))
    return gumbel_of_word(word)


@triton.jit
def noise_of_block(seed, position, begin, BLOCK: tl.constexpr):
    """Gumbel noise of tokens begin to begin + BLOCK - 1, both multiples of 4: four tokens share a counter."""
    counters = begin // 4 + tl.arange(0, BLOCK // 4)
    first, second, third, fourth = noise_words(seed, position, counters)
    # The lane is the last dimension: [0, 0] first, [0, 1] second, [1, 0] third, [1, 1] fourth.
    words = tl.join(tl.join(first, third), tl.join(second, fourth))
    return gumbel_of_word(tl.reshape(words, (BLOCK,)))


@triton.jit
def row_maximum(maxima, blocks, BLOCKS: tl.constexpr):
    """The row's largest logit from its blocks' ones; +inf stands for a row that holds NaN."""
    block = tl.arange(0, BLOCKS)
    return tl.max(tl.load(maxima + block, mask=block < blocks, other=-INFINITY), 0)


@triton.jit
def block_best(scores, columns):
    """The best score and the lowest column that has it."""
    best = tl.max(scores, 0)
    return best, tl.min(tl.where(scores == best, columns, NO_PLACE), 0)


@triton.jit
def finite(number):
    """Neither infinite nor NaN."""
    return (number > -INFINITY) & (number < INFINITY)


@triton.jit
def is_truncated(slot, heat, top_k, top_p, min_p, vocabulary):
    """Whether a slot's rows draw from less than the whole vocabulary."""
    cut = (tl.load(top_k + slot) < vocabulary) | (tl.load(top_p + slot) < 1.0) | (tl.load(min_p + slot) > 0.0)
    return cut & (heat > 0)


@triton.jit
def block_maxima(logits, stride, maxima, vocabulary, blocks, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """[rows, blocks]: the largest logit of a block; +inf where it holds NaN."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    block, row = tl.program_id(0), tl.program_id(1)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * stride + columns, mask=columns < vocabulary, other=-INFINITY)
    tl.store(maxima + row * blocks + block, tl.max(tl.where(x != x, INFINITY, x), 0))


@triton.jit
def best_of_blocks(
    logits, stride, slots, lengths, temperature, seeds, top_k, top_p, min_p, token_ids,
    maxima, numbers, places, arrivals, out, vocabulary, rows, blocks, by_slot,
    DRAWN: tl.constexpr, TRUNCATED: tl.constexpr, MAPPED: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The token of each row that is not truncated."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    block, row = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row // rows)
    heat = tl.load(temperature + slot)
    if TRUNCATED:  # noqa: SIM102 (known when the kernel is compiled, the other is not)
        if is_truncated(slot, heat, top_k, top_p, min_p, vocabulary):
            return
    position = tl.load(lengths + slot) + row % rows + 1
    best, place = best_of_block(
        logits + row.to(tl.int64) * stride, block, heat, seeds + slot, position, token_ids,
        maxima + row * blocks, vocabulary, blocks, DRAWN, MAPPED, BLOCK, BLOCKS,
    )  # fmt: skip
    numbers += row * blocks
    places += row * blocks
    tl.store(numbers + block, best)
    tl.store(places + block, place)
    if is_last(arrivals + row, blocks):
        token = token_of_row(numbers, places, maxima + row * blocks, token_ids, blocks, DRAWN, MAPPED, BLOCKS)
        tl.store(out + tl.where(by_slot > 0, slot * by_slot, row), token)


@triton.jit
def best_of_block(
    logits, block, heat, seeds, position, token_ids, maxima, vocabulary, blocks,
    DRAWN: tl.constexpr, MAPPED: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """The best score of a row's block, and the column it stands in."""
    columns = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + columns, mask=columns < vocabulary, other=-INFINITY)
    scores = tl.where(x != x, INFINITY, x)
    if DRAWN:
        largest = row_maximum(maxima, blocks, BLOCKS)
        # Without a finite logit the row has no token, whatever the scores are.
        if (heat > 0) & finite(largest):
            seed = tl.load(seeds)
            if MAPPED:
                tokens = tl.load(token_ids + columns, mask=columns < vocabulary, other=0)
                noise = noise_of_tokens(seed, position, tokens)
            else:
                noise = noise_of_block(seed, position, block * BLOCK, BLOCK)
            scores = tl.where(columns < vocabulary, tl.div_rn(x - largest, heat) + noise, -INFINITY)
    return block_best(scores, columns)


@triton.jit
def is_last(arrivals, programs):
    """Whether all other programs have arrived here, and hence what they stored can be read past L1."""
    # The barrier puts every thread's stores before the count, the count puts them before the last reader.
    tl.debug_barrier()
    last = tl.atomic_add(arrivals, 1, sem="acq_rel") == programs - 1
    if last:
        tl.store(arrivals, 0)
    return last


@triton.jit
def token_of_row(
    numbers, places, maxima, token_ids, blocks,
    DRAWN: tl.constexpr, MAPPED: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """A row's token from its blocks' results; -1 for none."""
    each = tl.arange(0, BLOCKS)
    bests = tl.load(numbers + each, mask=each < blocks, other=-INFINITY, cache_modifier=".cg")
    found = tl.load(places + each, mask=each < blocks, other=0, cache_modifier=".cg")
    best, token = block_best(bests, found)
    if DRAWN:
        best = row_maximum(maxima, blocks, BLOCKS)
    if MAPPED:
        token = tl.load(token_ids + token)
    return tl.where(finite(best), token, -1)
