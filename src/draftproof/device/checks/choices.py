"""The end of a pass: how tokens are chosen, accepted, and counted, and how drafts are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields

import torch
from torch import Tensor

from draftproof.device.checks.called import CheckedCall, CheckSubject, Numbers, integers, taking_turns
from draftproof.device.shapes import StepShape
from draftproof.kernels.advance import reference as advance_definition
from draftproof.kernels.advance.state import (
    RECORD_WIDTH,
    EmittedRing,
    PassOutcome,
    SlotProgress,
    SlotRules,
)
from draftproof.kernels.row_sampling import reference as sampling_definition
from draftproof.kernels.row_sampling.slot_sampling import (
    NO_TOKEN,
    RowChoice,
    SamplingScratch,
    SlotSampling,
)
from draftproof.kernels.step_geometry import StepGeometry

SEQUENCES = 4
DIFFERENT_ROWS = 0.26
"""Share of rows whose tokens may differ: scores that tie within rounding are chosen among by either, but not
in most rows."""


def check_choices(subject: CheckSubject) -> Iterator[CheckedCall]:
    """Every way to choose tokens, in windows of every width."""
    numbers = subject.numbers()
    for rows in sorted({shape.rows for shape in subject.shapes}):
        for choice in subject.choices:
            yield from _check_pass(subject, _Pass(subject, rows, choice, numbers))


class _Pass:
    """A few sequences at the end of a pass.

    Args:
        subject: what is checked.
        rows: of each window.
        choice: how their tokens are chosen.
        numbers: for the logits.
    """

    def __init__(self, subject: CheckSubject, rows: int, choice: RowChoice, numbers: Numbers) -> None:
        device, slots = subject.device, SEQUENCES + 1
        self.shape = StepShape(SEQUENCES, rows - 1)
        self.choice = choice
        self.vocabulary = subject.model.lm_head.rows
        self.logits = 2 * numbers.wide(self.shape.all_rows, self.vocabulary)
        self.sampling = _sampling(choice, slots, self.vocabulary, device)
        self.progress = SlotProgress.make(slots, rows - 1, device)
        self.progress.running.fill_(1)
        self.progress.lengths.copy_(integers([3 * slot for slot in range(slots)], device))
        self.progress.remaining.fill_(100)
        self.progress.draft_counts.fill_(rows - 1)
        self.rules = SlotRules.make(slots, 2, device)
        self.rules.draft_limit.fill_(rows - 1)
        self.outcome = PassOutcome.make(SEQUENCES, slots, rows - 1, device)
        records = torch.zeros(2, SEQUENCES, RECORD_WIDTH, dtype=torch.int32, device=device)
        self.ring = EmittedRing(torch.zeros(1, dtype=torch.int32, device=device), records)
        self.slots = integers(range(SEQUENCES, 0, -1), device)
        # Sequences with 0, 1, .. right drafts, whatever the definition would sample.
        drafts = self.definition().view(SEQUENCES, rows)
        for place, slot in enumerate(self.slots.tolist()):
            for draft in range(rows - 1):
                wrong = draft >= place
                self.progress.inputs[slot, 1 + draft] = (drafts[place, draft] + int(wrong)) % self.vocabulary

    @property
    def geometry(self) -> StepGeometry:
        """Of the window; sampling reads no page."""
        progress = self.progress
        return StepGeometry(
            self.shape.rows, self.slots, progress.lengths, progress.pending, progress.parity, self.slots, 1
        )

    @property
    def scratch(self) -> SamplingScratch:
        """Room for these rows."""
        return SamplingScratch.make(self.shape.all_rows, self.vocabulary, self.choice, self.logits.device)

    def definition(self) -> Tensor:
        """The tokens of every row."""
        sampled = torch.full((self.shape.all_rows,), NO_TOKEN, dtype=torch.int32, device=self.logits.device)
        sampling_definition.sample_rows(
            self.logits, self.geometry, self.sampling, self.choice, self.scratch, sampled
        )
        return sampled

    def state(self) -> tuple[Tensor, ...]:
        """All that the end of a pass moves."""
        moved = (self.progress, self.outcome, self.ring)
        return tuple(getattr(part, each.name) for part in moved for each in fields(part))


def _sampling(choice: RowChoice, slots: int, vocabulary: int, device: torch.device) -> SlotSampling:
    """Of the first sequence the largest logit is asked for, whatever the others want."""
    sampling = SlotSampling.greedy(slots, device)
    if choice is RowChoice.LARGEST:
        return sampling
    sampling.temperature[:SEQUENCES] = 0.7
    sampling.seeds.copy_(torch.arange(slots, device=device) * 7919)
    if choice is RowChoice.TRUNCATED:
        counts = taking_turns((20, vocabulary, 5, vocabulary), slots)
        sampling.top_k.copy_(integers(counts, device))
        sampling.top_p[1], sampling.min_p[3] = 0.9, 0.05
    return sampling


def _check_pass(subject: CheckSubject, given: _Pass) -> Iterator[CheckedCall]:
    kernels, shape, choice = subject.kernels, given.shape, given.choice
    name = f"{choice.value}, {shape.batch} x {shape.rows} rows of {given.vocabulary} logits"
    expected_tokens, expected = given.definition(), deepcopy(given)
    sampled = torch.full_like(expected_tokens, NO_TOKEN)
    kernels.sample_and_advance(
        given.logits,
        given.geometry,
        given.sampling,
        choice,
        given.scratch,
        sampled,
        given.progress,
        given.rules,
        given.outcome,
        given.ring,
        None,
    )
    different = float((sampled != expected_tokens).float().mean())
    yield subject.judged(CheckedCall("sample_and_advance", name, different), DIFFERENT_ROWS)
    # By the tokens that were sampled: a tie is none of the counting's business.
    advance_definition.advance(
        sampled, expected.slots, expected.progress, expected.rules, expected.outcome, expected.ring, None
    )
    moved = all(
        bool((one == other).all()) for one, other in zip(given.state(), expected.state(), strict=True)
    )
    yield subject.judged(CheckedCall("advance", name, 0.0 if moved else float("inf")))
    yield _check_drafts(subject, expected, name)


def _check_drafts(subject: CheckSubject, given: _Pass, name: str) -> CheckedCall:
    """Drafts among every third token."""
    token_ids = torch.arange(0, given.vocabulary, 3, dtype=torch.int32, device=given.logits.device)
    logits = given.logits[:SEQUENCES, : len(token_ids)].contiguous()
    chosen = []
    for call in (subject.kernels.sample_drafts, sampling_definition.sample_drafts):
        inputs = torch.full((SEQUENCES + 1, 3), NO_TOKEN, dtype=torch.int32, device=logits.device)
        geometry = StepGeometry(
            1,
            given.slots,
            given.progress.lengths,
            given.progress.pending,
            given.progress.parity,
            given.slots,
            1,
        )
        call(logits, geometry, given.sampling, given.choice, given.scratch, token_ids, inputs, 2)
        chosen.append(inputs)
    different = float((chosen[0] != chosen[1]).any(1).float().sum() / SEQUENCES)
    return subject.judged(CheckedCall("sample_drafts", name, different), DIFFERENT_ROWS)
