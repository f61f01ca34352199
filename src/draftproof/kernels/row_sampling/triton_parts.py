"""Device functions that the sampling kernels share."""

from __future__ import annotations

import triton
import triton.language as tl

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
def load_row_maximum(maxima, row, blocks, BLOCKS: tl.constexpr):
    """The row's largest logit from its blocks' ones; +inf stands for a row that holds NaN."""
    block = tl.arange(0, BLOCKS)
    return tl.max(tl.load(maxima + row * blocks + block, mask=block < blocks, other=-INFINITY), 0)


@triton.jit
def block_best(scores, columns):
    """The best score and the lowest column that has it."""
    best = tl.max(scores, 0)
    return best, tl.min(tl.where(scores == best, columns, NO_PLACE), 0)


@triton.jit
def finite(number):
    """Neither infinite nor NaN."""
    return (number > -INFINITY) & (number < INFINITY)
