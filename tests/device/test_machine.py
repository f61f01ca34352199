"""What the machine promises about launches, whatever they compute."""

from __future__ import annotations

import pytest
import torch

from draftproof.device.machine import StepMachine
from draftproof.device.shapes import BUCKETS, StepShape, bucket_of, padded_slots
from draftproof.device.state import SequenceRules
from draftproof.device.weights import DraftVocabulary, device_model
from draftproof.engine.device_engine import DeviceEngine
from draftproof.errors import UnsupportedRequest, UsageError
from draftproof.kernels.advance.state import EndFlag
from draftproof.kernels.packed_weights.packing import pack_dense
from draftproof.kernels.packed_weights.unpacking import unpack
from draftproof.kernels.row_sampling.slot_sampling import RowChoice
from draftproof.runtime.sampling import SamplingParameters
from tests.device.conftest import Pair
from tests.support.device_engines import CountingRecorder, make_device_engine, poison
from tests.support.engines import Settings


def test_a_batch_runs_in_the_smallest_bucket_that_holds_it() -> None:
    assert [bucket_of(count) for count in (1, 2, 3, 5, 9, 33, 64)] == [1, 2, 4, 8, 16, 64, 64]
    assert padded_slots([4, 0, 2], 9) == [4, 0, 2, 9]
    with pytest.raises(UsageError, match="65 sequences"):
        bucket_of(BUCKETS[-1] + 1)


def open_endless(engine: DeviceEngine, slot: int, limit: int) -> None:
    rules = SequenceRules(
        newest=7 + slot,
        max_tokens=1000,
        min_tokens=0,
        draft_limit=limit,
        stop_token_ids=(),
        parameters=SamplingParameters(),
    )
    pages = range(1 + slot * 8, 9 + slot * 8)
    engine.machine.state.open_slot(slot, pages, rules)


@torch.inference_mode()
def run_steps(engine: DeviceEngine, machine: StepMachine, draft_tokens: int, count: int) -> list[list[int]]:
    """Tokens of three sequences in slots 2, 0 and 1."""
    poison(engine.machine.state)
    for slot in range(3):
        open_endless(engine, slot, draft_tokens)
    found: list[list[int]] = [[], [], []]
    for _ in range(count):
        ticket = machine.launch([2, 0, 1], draft_tokens, RowChoice.LARGEST)
        for place, record in enumerate(machine.collect(ticket)):
            assert record.slot == (2, 0, 1)[place]
            assert record.end == EndFlag(0)
            found[place] += record.tokens
    return found


def test_recording_runs_on_the_scrap_slot_and_moves_nothing_of_value(small: Pair) -> None:
    recorder = CountingRecorder()
    settings = Settings(draft_tokens=2)
    engine = make_device_engine(small.packed, settings)
    recording = make_device_engine(small.packed, settings, recorder=recorder)
    expected = run_steps(engine, engine.machine, 2, 12)
    assert run_steps(recording, recording.machine, 2, 12) == expected
    assert recorder.recorded == 1
    # Another shape is recorded when it is first asked for, between steps that are in flight.
    run_steps(recording, recording.machine, 0, 2)
    assert recorder.recorded == 2


@torch.inference_mode()
@pytest.mark.parametrize(("thousandths", "counts"), [(2000, {3}), (1500, {2, 3}), (0, {1})])
def test_simulated_acceptance_is_what_was_asked_for(small: Pair, thousandths: int, counts: set[int]) -> None:
    engine = make_device_engine(small.packed, Settings(draft_tokens=3, max_length=120))
    state = engine.machine.state
    machine = StepMachine(
        engine.machine._kernels,
        engine.machine.model,
        state,
        StepShape(1, 3),
        CountingRecorder(),
        simulated_drafts=thousandths,
    )
    open_endless(engine, 0, 3)
    lengths = []
    for _ in range(21):
        (record,) = machine.collect(machine.launch([0], 3, RowChoice.LARGEST))
        lengths.append(len(record.tokens))
    # The first window has no drafts.
    assert lengths[0] == 1
    assert set(lengths[1:]) == counts
    assert sum(lengths[1:]) == 20 + 20 * thousandths // 1000
    assert int(state.progress.lengths[0]) == sum(lengths)


def test_a_draft_head_of_chosen_tokens_changes_acceptance_and_never_the_text(small: Pair) -> None:
    """Drafts come from the chosen tokens alone."""
    settings = Settings(draft_tokens=3)
    whole = make_device_engine(small.packed, settings)
    expected = run_steps(whole, whole.machine, 3, 16)
    lm_head = unpack(whole.machine.model.lm_head, torch.float32)
    token_ids = torch.arange(40, 120, dtype=torch.int32)
    drafts = DraftVocabulary(pack_dense(lm_head[token_ids.long()]), token_ids)
    trimmed = make_device_engine(small.packed, settings)
    machine = StepMachine(
        trimmed.machine._kernels,
        device_model(small.packed.target, small.packed.head, drafts),
        trimmed.machine.state,
        StepShape(4, 3),
        CountingRecorder(),
    )
    found = run_steps(trimmed, machine, 3, 16)
    shortest = [min(len(one), len(other)) for one, other in zip(found, expected, strict=True)]
    assert [one[:count] for one, count in zip(found, shortest, strict=True)] == [
        other[:count] for other, count in zip(expected, shortest, strict=True)
    ]
    inputs = trimmed.machine.state.progress.inputs[:3, 1:]
    assert bool(((inputs >= 40) & (inputs < 120)).all())


def test_weights_that_are_not_packed_are_refused(small: Pair) -> None:
    with pytest.raises(UnsupportedRequest, match="lm_head is not packed"):
        device_model(small.plain.target, None)
