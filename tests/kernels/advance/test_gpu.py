"""The end of a pass on a GPU leaves what the definition leaves, alone and with sampling in one launch."""

from __future__ import annotations

import random

import pytest
import torch

from draftproof.kernels.advance import reference
from draftproof.kernels.advance import triton as portable
from draftproof.kernels.advance.state import SimulatedAcceptance
from draftproof.kernels.row_sampling.slot_sampling import RowChoice, SamplingScratch, SlotSampling
from draftproof.kernels.step_geometry import StepGeometry
from tests.kernels.advance.cases import DEVICE, Machine, Slot, numbers

pytestmark = pytest.mark.gpu


def some_slots(batch: int, rows: int) -> list[Slot]:
    """Slots of every kind, with tokens that are often right."""
    chance = random.Random(batch)
    return [
        Slot(
            sampled=[chance.choice([-1, 0, 1, 1, 1]) for _ in range(rows)],
            drafts=[chance.randrange(2) for _ in range(chance.randrange(5))],
            running=chance.random() < 0.8,
            length=chance.randrange(50),
            parity=chance.randrange(2),
            remaining=chance.randrange(1, 8),
            unstoppable=chance.randrange(-2, 3),
            draft_limit=chance.randrange(5),
            stops=[chance.randrange(3)] if chance.random() < 0.3 else [],
        )
        for _ in range(batch)
    ]


@pytest.mark.parametrize(("batch", "rows"), [(1, 1), (1, 4), (64, 4)])
@pytest.mark.parametrize("simulated", [False, True])
def test_three_passes(batch: int, rows: int, simulated: bool) -> None:
    def machine() -> Machine:
        simulation = SimulatedAcceptance(1700, numbers([300] * batch)) if simulated else None
        return Machine(some_slots(batch, rows), rows, 3, simulation)

    expected, found = machine(), machine()
    for _ in range(3):
        expected.advance(reference)
        found.advance(portable)
        for ours, theirs in zip(found.state(), expected.state(), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("batch", "rows"), [(1, 4), (64, 1)])
def test_greedy_rows_and_the_end_of_the_pass_in_one_launch(batch: int, rows: int) -> None:
    vocabulary = 32_773
    machine = Machine(some_slots(batch, rows), rows, 3)
    logits = torch.randn(batch * rows, vocabulary, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    progress = machine.progress
    where = (progress.lengths, progress.pending, progress.parity, progress.lengths.view(-1, 1))
    choice, scratch = RowChoice.LARGEST, SamplingScratch.make(*logits.shape, RowChoice.LARGEST, DEVICE)
    sampling = SlotSampling.greedy(batch, DEVICE)
    expected = Machine(some_slots(batch, rows), rows, 3)
    expected.sampled.copy_(logits.argmax(1))
    expected.advance(reference)
    portable.sample_and_advance(
        logits, StepGeometry(rows, machine.slots, *where, page_size=16), sampling, choice, scratch,
        machine.sampled, progress, machine.rules, machine.outcome, machine.ring, None,
    )  # fmt: skip
    for ours, theirs in zip(machine.state(), expected.state(), strict=True):
        assert torch.equal(ours, theirs)
