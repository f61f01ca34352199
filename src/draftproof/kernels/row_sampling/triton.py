"""Sampling in Triton: programs look at blocks of a row's columns, the last one to finish a row joins them.

The largest logit needs one launch. A draw needs the row's largest logit first and hence two. Truncation is in
`triton_truncated`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

from draftproof.kernels.dependent_launch import has_dependent_launch
from draftproof.kernels.row_sampling.slot_sampling import BLOCK, RowChoice, SamplingScratch, SlotSampling
from draftproof.kernels.row_sampling.triton_parts import (
    INFINITY,
    block_best,
    finite,
    load_row_maximum,
    noise_of_block,
    noise_of_tokens,
)
from draftproof.kernels.row_sampling.triton_truncated import draw_truncated, is_truncated
from draftproof.kernels.step_geometry import StepGeometry

WARPS = 4


def sample_rows(
    logits: Tensor,
    geometry: StepGeometry,
    sampling: SlotSampling,
    choice: RowChoice,
    scratch: SamplingScratch,
    out: Tensor,
) -> None:
    """See `reference.sample_rows`."""
    _sample(logits, geometry, sampling, choice, scratch, None, out, by_slot=0)


def sample_drafts(
    logits: Tensor,
    geometry: StepGeometry,
    sampling: SlotSampling,
    choice: RowChoice,
    scratch: SamplingScratch,
    token_ids: Tensor | None,
    inputs: Tensor,
    place: int,
) -> None:
    """See `reference.sample_drafts`."""
    _sample(
        logits, geometry, sampling, choice, scratch, token_ids, inputs[:, place], by_slot=inputs.stride(0)
    )


def _sample(
    logits: Tensor,
    geometry: StepGeometry,
    sampling: SlotSampling,
    choice: RowChoice,
    scratch: SamplingScratch,
    token_ids: Tensor | None,
    out: Tensor,
    by_slot: int,
) -> None:
    """Launch what `choice` takes; tokens go to `out` by row, or by slot where `by_slot` is its stride."""
    rows, vocabulary = logits.shape
    blocks = triton.cdiv(vocabulary, BLOCK)
    early = has_dependent_launch(logits)
    drawn = choice is not RowChoice.LARGEST
    if drawn:
        block_maxima[(blocks, rows)](
            logits, logits.stride(0), scratch.numbers[0], vocabulary, blocks,
            BLOCK=BLOCK, PDL=early, num_warps=WARPS, launch_pdl=early,
        )  # fmt: skip
    if choice is RowChoice.TRUNCATED:
        draw_truncated(logits, geometry, sampling, scratch, token_ids, out, by_slot)
    best_of_blocks[(blocks, rows)](
        logits, logits.stride(0), geometry.slots, geometry.lengths,
        sampling.temperature, sampling.seeds, sampling.top_k, sampling.top_p, sampling.min_p,
        logits if token_ids is None else token_ids,
        scratch.numbers[0], scratch.numbers[1], scratch.places[1], scratch.arrivals, out,
        vocabulary, geometry.rows, blocks, by_slot,
        DRAWN=drawn, TRUNCATED=choice is RowChoice.TRUNCATED, MAPPED=token_ids is not None,
        BLOCK=BLOCK, BLOCKS=triton.next_power_of_2(blocks), PDL=early, num_warps=WARPS, launch_pdl=early,
    )  # fmt: skip


@triton.jit
def block_maxima(logits, stride, maxima, vocabulary, blocks, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """[rows, blocks]: the largest logit of a block; +inf where it holds NaN."""
    if PDL:
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
        gdc_wait()
    block, row = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row // rows)
    heat = tl.load(temperature + slot)
    if TRUNCATED:  # noqa: SIM102 (known when the kernel is compiled, the other is not)
        if is_truncated(slot, heat, top_k, top_p, min_p, vocabulary):
            return
    columns = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * stride + columns, mask=columns < vocabulary, other=-INFINITY)
    scores = tl.where(x != x, INFINITY, x)
    if DRAWN:
        largest = load_row_maximum(maxima, row, blocks, BLOCKS)
        if heat > 0:
            seed = tl.load(seeds + slot)
            position = tl.load(lengths + slot) + row % rows + 1
            if MAPPED:
                tokens = tl.load(token_ids + columns, mask=columns < vocabulary, other=0)
                noise = noise_of_tokens(seed, position, tokens)
            else:
                noise = noise_of_block(seed, position, block * BLOCK, BLOCK)
            # Without a finite one the row has no token, whatever the scores are.
            base = tl.where(finite(largest), largest, 0.0)
            scores = tl.where(columns < vocabulary, tl.div_rn(x - base, heat) + noise, -INFINITY)
    best, place = block_best(scores, columns)
    tl.store(numbers + row * blocks + block, best)
    tl.store(places + row * blocks + block, place)
    # The barrier puts every thread's stores before the count, the count puts them before the last reader.
    tl.debug_barrier()
    arrived = tl.atomic_add(arrivals + row, 1, sem="acq_rel")
    if arrived == blocks - 1:
        tl.store(arrivals + row, 0)
        each = row * blocks + tl.arange(0, BLOCKS)
        mask = tl.arange(0, BLOCKS) < blocks
        bests = tl.load(numbers + each, mask=mask, other=-INFINITY, cache_modifier=".cg")
        found = tl.load(places + each, mask=mask, other=0, cache_modifier=".cg")
        best, token = block_best(bests, found)
        if DRAWN:
            best = largest
        if MAPPED:
            token = tl.load(token_ids + token)
        token = tl.where(finite(best), token, -1)
        tl.store(out + tl.where(by_slot > 0, slot * by_slot, row), token)
