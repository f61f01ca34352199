"""Sampling in Triton: programs look at blocks of a row's columns, the last one to finish a row joins them.

The largest logit needs one launch. A draw needs the row's largest logit first and hence two. Truncation is in
`truncation_kernels`.
"""

from __future__ import annotations

import triton
from torch import Tensor

from draftproof.kernels.dependent_launch import has_dependent_launch
from draftproof.kernels.row_sampling.slot_sampling import (
    BLOCK,
    COARSE,
    RowChoice,
    SamplingScratch,
    SlotSampling,
)
from draftproof.kernels.row_sampling.triton_kernels import best_of_blocks, block_maxima
from draftproof.kernels.row_sampling.truncation_kernels import count_coarse, list_candidates, pick
from draftproof.kernels.step_geometry import StepGeometry

WARPS = 4
PICK_WARPS = 8
PICK_BLOCK = 2048
PICK_SHORT = 128


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


def find_maxima(logits: Tensor, scratch: SamplingScratch) -> None:
    """Each block's largest logit to `scratch.numbers[0]`, as draws need it first."""
    rows, vocabulary = logits.shape
    blocks = triton.cdiv(vocabulary, BLOCK)
    early = has_dependent_launch(logits)
    block_maxima[(blocks, rows)](
        logits, logits.stride(0), scratch.numbers[0], vocabulary, blocks,
        BLOCK=BLOCK, PDL=early, num_warps=WARPS, launch_pdl=early,
    )  # fmt: skip


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
        find_maxima(logits, scratch)
    if choice is RowChoice.TRUNCATED:
        _draw_truncated(logits, geometry, sampling, scratch, token_ids, out, by_slot)
    best_of_blocks[(blocks, rows)](
        logits, logits.stride(0), geometry.slots, geometry.lengths,
        sampling.temperature, sampling.seeds, sampling.top_k, sampling.top_p, sampling.min_p,
        logits if token_ids is None else token_ids,
        scratch.numbers[0], scratch.numbers[1], scratch.places[1], scratch.arrivals, out,
        vocabulary, geometry.rows, blocks, by_slot,
        DRAWN=drawn, TRUNCATED=choice is RowChoice.TRUNCATED, MAPPED=token_ids is not None,
        BLOCK=BLOCK, BLOCKS=triton.next_power_of_2(blocks), PDL=early, num_warps=WARPS, launch_pdl=early,
    )  # fmt: skip


def _draw_truncated(
    logits: Tensor,
    geometry: StepGeometry,
    sampling: SlotSampling,
    scratch: SamplingScratch,
    token_ids: Tensor | None,
    out: Tensor,
    by_slot: int,
) -> None:
    """Draw the rows that are truncated, whose largest logits lie in `scratch.numbers[0]`; others are left."""
    rows, vocabulary = logits.shape
    blocks = triton.cdiv(vocabulary, BLOCK)
    early = has_dependent_launch(logits)
    limits = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    lists = (scratch.counts, scratch.masses, scratch.values, scratch.columns)
    sizes = (vocabulary, geometry.rows, blocks)
    padded = triton.next_power_of_2(blocks)
    count_coarse[(blocks, rows)](
        logits, logits.stride(0), geometry.slots, *limits, scratch.numbers[0], *lists[:2], *sizes,
        BLOCK=BLOCK, BLOCKS=padded, COARSE=COARSE, PDL=early, num_warps=WARPS, launch_pdl=early,
    )  # fmt: skip
    list_candidates[(blocks, rows)](
        logits, logits.stride(0), geometry.slots, *limits, scratch.numbers[0], *lists,
        scratch.values.stride(0), *sizes,
        BLOCK=BLOCK, BLOCKS=padded, COARSE=COARSE, PDL=early, num_warps=WARPS, launch_pdl=early,
    )  # fmt: skip
    pick[(rows,)](
        geometry.slots, geometry.lengths, *limits, sampling.seeds,
        logits if token_ids is None else token_ids,
        scratch.numbers[0], *lists, scratch.values.stride(0), out, *sizes, by_slot,
        MAPPED=token_ids is not None, BLOCK=PICK_BLOCK, SHORT=PICK_SHORT, BLOCKS=padded,
        COARSE=COARSE, PDL=early, num_warps=PICK_WARPS, launch_pdl=early,
    )  # fmt: skip
