"""Plain torch definition: `sampling.draw_tokens` for rows whose numbers lie on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.kernels.row_sampling.slot_sampling import NO_TOKEN, RowChoice, SamplingScratch, SlotSampling
from draftproof.kernels.sampling.reference import draw_tokens
from draftproof.kernels.step_geometry import StepGeometry


def sample_rows(
    logits: Tensor,
    geometry: StepGeometry,
    sampling: SlotSampling,
    choice: RowChoice,
    scratch: SamplingScratch,
    out: Tensor,
) -> None:
    """Choose a token for every row of a window: row j of a sequence gets the token of position
    lengths[slot] + j + 1.

    Args:
        logits: [batch * rows, vocabulary] float32; columns contiguous.
        geometry: slots, lengths and rows of the window.
        sampling: how each slot's rows are sampled.
        choice: what the launch must be able to do; what it cannot do is not asked of it.
        scratch: room for partial results; unused here.
        out: [batch * rows] int32, written; `NO_TOKEN` where there is no choice.
    """
    del choice, scratch
    out.copy_(_choose(logits, geometry, sampling, None))


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
    """Choose one draft for every sequence, among all tokens or those that the draft head knows, and put it
    among the sequence's next inputs.

    Of a draft head with chosen tokens, the others count as -inf: ids, noise and ties are the whole
    vocabulary's.

    Args:
        logits: [batch, head rows] float32.
        geometry: windows of one row: the slots, and lengths such that the draft is the token of position
            lengths[slot] + 1.
        sampling, choice, scratch: as in `sample_rows`.
        token_ids: [head rows] int32 ascending, what each row of the head stands for; None for row = token.
        inputs: [slots, 1 + drafts] int32, column `place` of the sequences' slots is written.
        place: 1 for the first draft.
    """
    del choice, scratch
    inputs[geometry.slots.long(), place] = _choose(logits, geometry, sampling, token_ids).int()


def _choose(
    logits: Tensor, geometry: StepGeometry, sampling: SlotSampling, token_ids: Tensor | None
) -> Tensor:
    """[batch * rows] int64 tokens."""
    if token_ids is not None:
        wide = logits.new_full((logits.shape[0], int(token_ids[-1]) + 1), -torch.inf)
        wide[:, token_ids.long()] = logits
        logits = wide
    slots = geometry.slots.long().repeat_interleave(geometry.rows)
    offsets = torch.arange(geometry.rows, device=logits.device).repeat(geometry.batch)
    positions = geometry.lengths.long()[slots] + offsets + 1
    largest, tokens = logits.max(1)
    temperature = sampling.temperature[slots]
    drawn = (largest.isfinite() & (temperature > 0)).nonzero().squeeze(1)
    if len(drawn):
        rows = slots[drawn]
        tokens[drawn] = draw_tokens(
            logits[drawn],
            temperature[drawn],
            sampling.top_k[rows].long(),
            sampling.top_p[rows],
            sampling.min_p[rows],
            sampling.seeds[rows],
            positions[drawn],
        )
    return torch.where(largest.isfinite(), tokens, NO_TOKEN)
