"""Sampling in Triton: programs look at blocks of a row's columns, the last one to finish a row joins them.

The largest logit and a draw from the whole vocabulary take one launch; where rows are cut, the cuts are found
first, in five more.
"""

from __future__ import annotations

import triton
from torch import Tensor

from draftproof.kernels.dependent_launch import has_dependent_launch
from draftproof.kernels.row_sampling.slot_sampling import (
    BLOCK,
    LARGE_BLOCK,
    STEPS,
    RowChoice,
    SamplingScratch,
    SlotSampling,
)
from draftproof.kernels.row_sampling.triton_kernels import choose_tokens
from draftproof.kernels.row_sampling.truncation_kernels import block_maxima, find_cut, narrow
from draftproof.kernels.step_geometry import StepGeometry

WARPS = 4
CUT_WARPS = 8
SHORT, PART = 128, 1024
"""Depths of a list that are compared all with all, and that a program looks at in one go."""
MARGIN = 2e-6
"""A best score of fast noise is sure when it leads by this times (100 + its size): four times what the scores
can be wrong."""


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
    block = block_of(choice)
    blocks = triton.cdiv(vocabulary, block)
    early = has_dependent_launch(logits)
    limited = choice is RowChoice.TRUNCATED
    if limited:
        _find_cuts(logits, geometry, sampling, scratch)
    choose_tokens[(blocks, rows)](
        logits, logits.stride(0), geometry.slots, geometry.lengths,
        sampling.temperature, sampling.seeds, sampling.top_k, sampling.top_p, sampling.min_p,
        logits if token_ids is None else token_ids, scratch.cuts.limits,
        scratch.partial, scratch.partial.stride(0), scratch.places, scratch.arrivals, out,
        vocabulary, geometry.rows, blocks, by_slot,
        DRAWN=choice is not RowChoice.LARGEST, LIMITED=limited, MAPPED=token_ids is not None, MARGIN=MARGIN,
        BLOCK=block, BLOCKS=triton.next_power_of_2(blocks), PDL=early, num_warps=WARPS, launch_pdl=early,
    )  # fmt: skip


def block_of(choice: RowChoice) -> int:
    """Columns of one program: noise needs the registers of more of them."""
    return LARGE_BLOCK if choice is RowChoice.LARGEST else BLOCK


def _find_cuts(
    logits: Tensor, geometry: StepGeometry, sampling: SlotSampling, scratch: SamplingScratch
) -> None:
    """The cuts of all rows that top-k or top-p cuts, to `scratch.cuts.limits`, and each block's largest logit
    to `scratch.partial[0]`."""
    rows, vocabulary = logits.shape
    blocks = triton.cdiv(vocabulary, BLOCK)
    early = has_dependent_launch(logits)
    maxima, cuts = scratch.partial[0], scratch.cuts
    block_maxima[(blocks, rows)](
        logits, logits.stride(0), maxima, vocabulary, blocks,
        BLOCK=BLOCK, PDL=early, num_warps=WARPS, launch_pdl=early,
    )  # fmt: skip
    limits = (sampling.temperature, sampling.top_k, sampling.top_p)
    given = (logits, logits.stride(0), geometry.slots, *limits, maxima)
    sizes = (vocabulary, geometry.rows, blocks)
    padded = triton.next_power_of_2(blocks)
    for first in (True, False, False):
        narrow[(blocks, rows)](
            *given, cuts.counts, cuts.masses, cuts.offsets, cuts.ranges, cuts.shares,
            scratch.arrivals, *sizes,
            FIRST=first, STEPS=STEPS, BLOCK=BLOCK, BLOCKS=padded,
            PDL=early, num_warps=WARPS, launch_pdl=early,
        )  # fmt: skip
    find_cut[(blocks, rows)](
        *given, cuts.offsets, cuts.ranges, cuts.shares, cuts.listed, cuts.listed.stride(0), cuts.limits,
        scratch.arrivals, *sizes,
        SHORT=SHORT, PART=PART, BLOCK=BLOCK, BLOCKS=padded, PDL=early, num_warps=CUT_WARPS, launch_pdl=early,
    )  # fmt: skip
