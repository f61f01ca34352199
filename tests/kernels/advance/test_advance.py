"""The end of a pass on the device against the host's rules: `count_accepted` and `truncate_emitted`."""

from __future__ import annotations

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.kernels.advance import reference
from draftproof.kernels.advance.state import (
    RECORD_WIDTH,
    EmittedRing,
    EndFlag,
    PassOutcome,
    RecordField,
    SimulatedAcceptance,
)
from draftproof.kernels.row_sampling.slot_sampling import BLOCK, RowChoice, SamplingScratch, SlotSampling
from draftproof.kernels.step_geometry import StepGeometry
from draftproof.speculation.acceptance import FinishReason, OutputEnd, truncate_emitted
from tests.kernels.advance.cases import DEVICE, MOST_DRAFTS, Machine, Slot, numbers

triton_form = pytest.importorskip("draftproof.kernels.advance.triton")
BACKENDS = [pytest.param(reference, id="reference"), pytest.param(triton_form, id="triton")]
ENDS = {None: EndFlag.NONE, FinishReason.STOP: EndFlag.STOP, FinishReason.LENGTH: EndFlag.LENGTH}


def slots_of(rows: int) -> st.SearchStrategy[Slot]:
    token = st.integers(0, 2)
    return st.builds(
        Slot,
        sampled=st.lists(st.one_of(token, st.sampled_from([-1, 0])), min_size=rows, max_size=rows),
        drafts=st.lists(token, max_size=MOST_DRAFTS),
        running=st.sampled_from([True, True, True, False]),
        length=st.integers(0, 50),
        parity=st.integers(0, 1),
        remaining=st.integers(1, 7),
        unstoppable=st.integers(-2, 3),
        draft_limit=st.integers(0, MOST_DRAFTS),
        stops=st.lists(token, max_size=2),
    )


@given(st.data(), st.integers(1, MOST_DRAFTS + 1), st.integers(1, 5), st.integers(0, MOST_DRAFTS))
@settings(max_examples=100, deadline=None)
def test_a_pass_ends_as_the_host_s_rules_say(
    data: st.DataObject, rows: int, batch: int, chained: int
) -> None:
    cases = data.draw(st.lists(slots_of(rows), min_size=batch, max_size=batch))
    machine = Machine(cases, rows, chained)
    machine.advance(reference)
    assert machine.ring.step.tolist() == [6]
    for slot, case in enumerate(cases):
        check_slot(machine, slot, case)


def check_slot(machine: Machine, slot: int, case: Slot) -> None:
    """One slot against a walk over its window."""
    progress, place = machine.progress, len(machine.cases) - 1 - slot
    live = min(len(case.drafts), machine.rows - 1) if case.running else 0
    faulty = -1 in case.sampled[: live + 1]
    moves = case.running and not faulty
    accepted, kept, end = 0, 0, EndFlag.FAULT if case.running and faulty else EndFlag.NONE
    if moves:
        while accepted < live and case.drafts[accepted] == case.sampled[accepted]:
            accepted += 1
        # The output holds `before` tokens, so that the limits count from there.
        before = 20
        rule = OutputEnd(frozenset(case.stops), before + case.remaining, before + case.unstoppable)
        run = truncate_emitted(case.sampled[: accepted + 1], before, rule)
        kept, end = run.kept, ENDS[run.finish_reason]
    length = case.length + (accepted + 1 if moves else 0)
    assert machine.record(slot)[: RecordField.TOKENS] == [5, slot, kept, end, accepted, live, length, 0]
    assert machine.record(slot)[RecordField.TOKENS :][: machine.rows] == case.sampled
    assert machine.outcome.accepted[place] == accepted
    assert machine.outcome.window_lengths[slot] == case.length
    assert machine.outcome.draft_lengths[:, slot].tolist() == [
        case.length + accepted + 1 + draft for draft in range(machine.chained)
    ]
    assert progress.running[slot] == int(case.running and not end)
    assert progress.lengths[slot] == length
    assert progress.parity[slot] == (case.parity ^ 1 if moves else case.parity)
    if not moves:
        assert (progress.pending[slot], progress.inputs[slot, 0]) == (1, 55)
        return
    assert progress.pending[slot] == (accepted + 1 if machine.rows > 1 else 0)
    assert progress.inputs[slot, 0] == case.sampled[accepted]
    remaining = case.remaining - kept
    assert progress.remaining[slot] == remaining
    assert progress.unstoppable[slot] == case.unstoppable - kept
    assert progress.draft_counts[slot] == max(min(case.draft_limit, machine.chained, remaining - 1), 0)


@given(st.data(), st.integers(1, MOST_DRAFTS + 1), st.integers(1, 5), st.booleans())
@settings(max_examples=25, deadline=None, phases=[Phase.reuse, Phase.generate])
def test_triton_leaves_what_the_definition_leaves(
    data: st.DataObject, rows: int, batch: int, simulated: bool
) -> None:
    cases = data.draw(st.lists(slots_of(rows), min_size=batch, max_size=batch))

    def simulation() -> SimulatedAcceptance | None:
        return SimulatedAcceptance(1700, numbers([300] * batch)) if simulated else None

    expected, found = Machine(cases, rows, 3, simulation()), Machine(cases, rows, 3, simulation())
    for _ in range(3):
        expected.advance(reference)
        found.advance(triton_form)
        for ours, theirs in zip(found.state(), expected.state(), strict=True):
            assert torch.equal(ours, theirs)
        if expected.simulation is not None and found.simulation is not None:
            assert torch.equal(found.simulation.credit, expected.simulation.credit)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("thousandths", "counts"), [(2000, [2, 2, 2, 2]), (2250, [2, 2, 2, 3]), (500, [0, 1, 0, 1])]
)
def test_simulated_acceptance_has_the_asked_mean(
    backend: object, thousandths: int, counts: list[int]
) -> None:
    """Drafts that are all wrong are accepted as often as asked, and stand in the output."""
    simulation = SimulatedAcceptance(thousandths, numbers([0]))
    case = Slot(sampled=[1, 2, 3, 4], drafts=[5, 6, 7])
    found = []
    for _ in counts:
        machine = Machine([case], 4, 3, simulation)
        machine.advance(backend)
        record = machine.record(0)
        accepted = record[RecordField.ACCEPTED]
        assert record[RecordField.TOKENS :][: accepted + 1] == [*[5, 6, 7][:accepted], [1, 2, 3, 4][accepted]]
        found.append(accepted)
    assert found == counts


@pytest.mark.parametrize("backend", BACKENDS)
def test_places_that_share_an_idle_slot_change_nothing(backend: object) -> None:
    machine = Machine([Slot([1, 1], [1], running=False), Slot([1, 1], [1])], 2, 1)
    machine.slots = numbers([1, 0, 0, 0])
    machine.sampled = numbers([1, 1, -1, 1, 1, 1, 1, 1])
    machine.outcome = PassOutcome.make(4, 2, 1, DEVICE)
    records = torch.zeros((2, 4, RECORD_WIDTH), dtype=torch.int32, device=DEVICE)
    machine.ring = EmittedRing(machine.ring.step, records)
    machine.advance(backend)
    assert machine.progress.lengths.tolist() == [10, 12]
    assert records[1, :, RecordField.KEPT].tolist() == [2, 0, 0, 0]


@pytest.mark.parametrize("choice", list(RowChoice))
@pytest.mark.parametrize("simulated", [False, True])
def test_sampling_and_the_end_of_the_pass_in_one_op(choice: RowChoice, simulated: bool) -> None:
    """Three slots of two rows, of which drafts are right, wrong and missing; greedy and drawn."""
    vocabulary = BLOCK + 50
    logits = torch.randn(6, vocabulary, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    cases = [Slot([0, 0], [7]), Slot([0, 0], [int(logits[2].argmax())]), Slot([0, 0], [], stops=[3])]

    def run(backend: object) -> list[Tensor]:
        simulation = SimulatedAcceptance(500, numbers([700, 0, 0])) if simulated else None
        machine = Machine(cases, 2, 3, simulation)
        progress = machine.progress
        pages = progress.lengths.view(-1, 1)
        geometry = StepGeometry(
            2, machine.slots, progress.lengths, progress.pending, progress.parity, pages, 16
        )
        sampling = SlotSampling.greedy(3, DEVICE)
        if choice is not RowChoice.LARGEST:
            sampling.temperature[2] = 0.8
        if choice is RowChoice.TRUNCATED:
            sampling.top_k[2] = 5
        scratch = SamplingScratch.make(6, vocabulary, choice, DEVICE)
        for _ in range(2):
            backend.sample_and_advance(  # type: ignore[attr-defined]
                logits, geometry, sampling, choice, scratch, machine.sampled, progress, machine.rules,
                machine.outcome, machine.ring, simulation,
            )  # fmt: skip
        assert not scratch.arrivals.any()
        return machine.state()

    for ours, theirs in zip(run(triton_form), run(reference), strict=True):
        assert torch.equal(ours, theirs)
