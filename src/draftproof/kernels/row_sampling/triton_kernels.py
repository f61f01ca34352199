"""The kernel that finds each row's best token, and the device functions that all sampling kernels share.

The winner of a draw is the largest of scaled logit + noise. Noise costs two exact logarithms, so scores are
first made with fast ones; where the best of them leads by more than they can be wrong, it is the winner, and
where it does not (of a thousand draws hardly one) the row is looked at again with exact ones.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_operands import INTERPRETED

TOKEN_STREAM = tl.constexpr(1)
"""As in `noise.reference`."""
INFINITY = tl.constexpr(float("inf"))
NO_PLACE = tl.constexpr(2**31 - 1)
DEEPEST = tl.constexpr(0x7F7FFFFF)
"""Depth of the lowest finite number."""
UNIFORM_STEP = tl.constexpr(2.0**-23)
LOG_OF_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def gumbel_of_word(word, EXACT: tl.constexpr):
    """Standard Gumbel numbers from Philox words; fast ones are wrong by less than 2e-5."""
    uniform = ((word >> 9).to(tl.float32) + 0.5) * UNIFORM_STEP
    if EXACT:
        return -tl.log(-tl.log(uniform))
    # Near 1 the fast logarithm has no correct digit, and there lie the numbers that win.
    rest = 1.0 - uniform
    series = rest * (1.0 + rest * (0.5 + rest * (0.3333333333 + rest * 0.25)))
    exponential = tl.where(rest < 0.015625, series, -LOG_OF_2 * fast_log2(uniform))
    return -LOG_OF_2 * fast_log2(exponential)


@triton.jit
def fast_log2(x):
    """Absolute error 2^-22 in 0.5 .. 2, elsewhere a relative one."""
    if INTERPRETED:
        return tl.log2(x)
    return tl.inline_asm_elementwise(
        "lg2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


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
def noise_of_tokens(seed, position, tokens, EXACT: tl.constexpr):
    """Gumbel noise of tokens in any order: every token pays for its own counter."""
    first, second, third, fourth = noise_words(seed, position, tokens >> 2)
    lane = tokens & 3
    word = tl.where(lane < 2, tl.where(lane == 0, first, second), tl.where(lane == 2, third, fourth))
    return gumbel_of_word(word, EXACT)


@triton.jit
def noise_of_block(seed, position, begin, EXACT: tl.constexpr, BLOCK: tl.constexpr):
    """Gumbel noise of tokens begin to begin + BLOCK - 1, both multiples of 4: four tokens share a counter."""
    counters = begin // 4 + tl.arange(0, BLOCK // 4)
    first, second, third, fourth = noise_words(seed, position, counters)
    # The lane is the last dimension: [0, 0] first, [0, 1] second, [1, 0] third, [1, 1] fourth.
    words = tl.join(tl.join(first, third), tl.join(second, fourth))
    return gumbel_of_word(tl.reshape(words, (BLOCK,)), EXACT)


@triton.jit
def row_maximum(maxima, blocks, BLOCKS: tl.constexpr):
    """The row's largest logit from its blocks' ones; +inf stands for a row that holds NaN."""
    block = tl.arange(0, BLOCKS)
    found = tl.load(maxima + block, mask=block < blocks, other=-INFINITY, cache_modifier=".cg")
    return tl.max(found, 0)


@triton.jit
def best_and_place(scores, columns):
    """The best score and the lowest column that has it."""
    best = tl.max(scores, 0)
    return best, tl.min(tl.where(scores == best, columns, NO_PLACE), 0)


@triton.jit
def finite(number):
    """Neither infinite nor NaN."""
    return (number > -INFINITY) & (number < INFINITY)


@triton.jit
def depth_of(scaled):
    """Bits without the sign: an integer that grows as a number that is not positive falls."""
    return scaled.to(tl.int32, bitcast=True) & 0x7FFFFFFF


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
def load_block(logits, block, vocabulary, BLOCK: tl.constexpr):
    """A block's columns and logits, -inf behind the vocabulary."""
    columns = block * BLOCK + tl.arange(0, BLOCK)
    return columns, tl.load(logits + columns, mask=columns < vocabulary, other=-INFINITY)


@triton.jit
def drawn_scores(
    x, columns, block, heat, seed, position, token_ids, largest, limit, vocabulary,
    EXACT: tl.constexpr, LIMITED: tl.constexpr, MAPPED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Scaled logits with noise; fast ones without a limit are not relative to the row's largest logit."""
    if MAPPED:
        tokens = tl.load(token_ids + columns, mask=columns < vocabulary, other=0)
        noise = noise_of_tokens(seed, position, tokens, EXACT)
    else:
        noise = noise_of_block(seed, position, block * BLOCK, EXACT, BLOCK)
    scaled = tl.div_rn(x - largest, heat) if EXACT or LIMITED else x * (1.0 / heat)
    scores = scaled + noise
    if LIMITED:
        scores = tl.where(depth_of(scaled) <= limit, scores, -INFINITY)
    return tl.where(columns < vocabulary, scores, -INFINITY)


@triton.jit
def leave_block(
    logits, block, heat, seed, position, token_ids, limit, partial, size, places, vocabulary, blocks,
    DRAWN: tl.constexpr, LIMITED: tl.constexpr, MAPPED: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Leave a block's largest logit, best and second-best score, and the place of the best.

    `partial` points to three arrays of `size` numbers: largest logits, best and second-best scores."""
    columns, x = load_block(logits, block, vocabulary, BLOCK)
    scores = tl.where(x != x, INFINITY, x)
    largest = tl.max(scores, 0)
    if LIMITED:
        whole = row_maximum(partial, blocks, BLOCKS)
    else:
        whole = largest
        tl.store(partial + block, largest)
    if DRAWN:
        if (heat > 0) & finite(whole):
            scores = drawn_scores(
                x, columns, block, heat, seed, position, token_ids, whole, limit, vocabulary,
                False, LIMITED, MAPPED, BLOCK,
            )  # fmt: skip
        best, place = best_and_place(scores, columns)
        tl.store(partial + 2 * size + block, tl.max(tl.where(columns == place, -INFINITY, scores), 0))
    else:
        best, place = best_and_place(scores, columns)
    tl.store(partial + size + block, best)
    tl.store(places + block, place)


@triton.jit
def token_of_row(
    logits, heat, seed, position, token_ids, limit, partial, size, places, vocabulary, blocks,
    DRAWN: tl.constexpr, LIMITED: tl.constexpr, MAPPED: tl.constexpr,
    MARGIN: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """A row's token from what its blocks left; -1 for none."""
    each = tl.arange(0, BLOCKS)
    mask = each < blocks
    bests = tl.load(partial + size + each, mask=mask, other=-INFINITY, cache_modifier=".cg")
    found = tl.load(places + each, mask=mask, other=NO_PLACE, cache_modifier=".cg")
    best, place = best_and_place(bests, found)
    largest = best
    if DRAWN:
        largest = row_maximum(partial, blocks, BLOCKS)
        if (heat > 0) & finite(largest):
            seconds = tl.load(partial + 2 * size + each, mask=mask, other=-INFINITY, cache_modifier=".cg")
            second = tl.max(tl.where(found == place, seconds, bests), 0)
            # Written so that an infinite best is never sure.
            sure = second < best - MARGIN * (100.0 + tl.abs(best))
            if not sure:
                best = tl.full((), -INFINITY, tl.float32)
                for block in range(blocks):
                    columns, x = load_block(logits, block, vocabulary, BLOCK)
                    scores = drawn_scores(
                        x, columns, block, heat, seed, position, token_ids, largest, limit, vocabulary,
                        True, LIMITED, MAPPED, BLOCK,
                    )  # fmt: skip
                    here, at = best_and_place(scores, columns)
                    # Of equal scores the lowest id wins: it came first.
                    if here > best:
                        best = here
                        place = at
    token = place
    if MAPPED:
        token = tl.load(token_ids + place, mask=place < vocabulary, other=0)
    return tl.where(finite(largest), token, -1)


@triton.jit
def choose_tokens(
    logits, stride, slots, lengths, temperature, seeds, top_k, top_p, min_p, token_ids,
    limits, partial, size, places, arrivals, out, vocabulary, rows, blocks, by_slot,
    DRAWN: tl.constexpr, LIMITED: tl.constexpr, MAPPED: tl.constexpr,
    MARGIN: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The token of each row."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    block, row = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row // rows)
    heat = tl.load(temperature + slot)
    position = tl.load(lengths + slot) + row % rows + 1
    seed = tl.load(seeds + slot)
    limit = tl.full((), DEEPEST, tl.int32)
    if LIMITED:
        limit = limit_of_row(limits + row, slot, top_k, top_p, min_p, vocabulary)
    logits += row.to(tl.int64) * stride
    partial += row * blocks
    places += row * blocks
    reaches = True
    if LIMITED:
        reaches = block_reaches(partial, block, heat, limit, blocks, BLOCKS)
    if reaches:
        leave_block(
            logits, block, heat, seed, position, token_ids, limit, partial, size, places, vocabulary, blocks,
            DRAWN, LIMITED, MAPPED, BLOCK, BLOCKS,
        )  # fmt: skip
    else:
        tl.store(partial + size + block, -INFINITY)
        tl.store(partial + 2 * size + block, -INFINITY)
        tl.store(places + block, NO_PLACE)
    if is_last(arrivals + row, blocks):
        token = token_of_row(
            logits, heat, seed, position, token_ids, limit, partial, size, places, vocabulary, blocks,
            DRAWN, LIMITED, MAPPED, MARGIN, BLOCK, BLOCKS,
        )  # fmt: skip
        tl.store(out + tl.where(by_slot > 0, slot * by_slot, row), token)


@triton.jit
def limit_of_row(limit, slot, top_k, top_p, min_p, vocabulary):
    """The deepest depth that a row keeps: what was found for top-k and top-p, and min-p's."""
    deepest = tl.full((), DEEPEST, tl.int32)
    if (tl.load(top_k + slot) < vocabulary) | (tl.load(top_p + slot) < 1.0):
        deepest = tl.load(limit)
    share = tl.load(min_p + slot)
    if share > 0.0:
        deepest = tl.minimum(deepest, depth_of(tl.log(share).to(tl.float32)))
    return deepest


@triton.jit
def block_reaches(maxima, block, heat, limit, blocks, BLOCKS: tl.constexpr):
    """Whether a block has anything that a row keeps; true for greedy rows and those without a token."""
    largest = row_maximum(maxima, blocks, BLOCKS)
    reaches = tl.full((), 1, tl.int32)
    if (heat > 0) & finite(largest):
        scaled = tl.div_rn(tl.load(maxima + block) - largest, heat)
        reaches = (depth_of(scaled) <= limit).to(tl.int32)
    return reaches > 0
