"""Requests that share device steps do not know of each other: aborts, slots, pages, faults, other K's."""

from __future__ import annotations

import random

import pytest
import torch

from draftproof.engine.device_engine import DeviceEngine
from draftproof.engine.request import Request
from draftproof.errors import EngineFault, UsageError
from draftproof.kernels.gated_delta_decode.state import DeviceRecurrentState
from draftproof.runtime.sampling import SamplingParameters
from tests.device.conftest import Pair
from tests.support.device_engines import CountingRecorder, ScriptedDrafts, make_device_engine
from tests.support.draft_choices import PatternChoice
from tests.support.engines import Settings, random_prompt, run_alone, texts


def request_of(number: int, prompt_length: int, max_tokens: int, temperature: float) -> Request:
    parameters = SamplingParameters(
        temperature=temperature,
        seed=number,
        max_tokens=max_tokens,
        ignore_eos=True,
        frequency_penalty=0.5 if number == 3 else 0.0,
    )
    return Request(f"r{number}", random_prompt(prompt_length, number), parameters)


REQUESTS = [
    request_of(0, 5, 30, 0.0),
    request_of(1, 37, 12, 0.8),
    request_of(2, 16, 1, 0.0),
    request_of(3, 1, 25, 0.8),
    request_of(4, 20, 18, 1.3),
    request_of(5, 9, 2, 0.0),
]


@pytest.fixture(scope="module")
def alone(small: Pair) -> dict[str, tuple[int, ...]]:
    return texts(run_alone(small.plain, REQUESTS))


def scripted(alone: dict[str, tuple[int, ...]]) -> ScriptedDrafts:
    return ScriptedDrafts(alone, 320, (3, 0, 1, None))


def finish(engine: DeviceEngine, found: dict[str, list[int]]) -> None:
    """Run to the end, collecting tokens by request."""
    while engine.has_work:
        for output in engine.step():
            found.setdefault(output.request_id, []).extend(output.token_ids)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (3, 0, 5, 1, 4, 2)])
def test_any_order_gives_every_request_its_own_text(
    small: Pair, alone: dict[str, tuple[int, ...]], order: tuple[int, ...]
) -> None:
    """One after the other in few slots: a slot's next sequence begins while a step of the last one is in
    flight."""
    ordered = [REQUESTS[index] for index in order]
    for slots in (1, 2, 6):
        sizes = Settings(draft_tokens=3, slots=slots, page_size=8)
        engine = make_device_engine(small.packed, sizes, drafts=scripted(alone))
        assert texts(engine.run(ordered)) == alone
        engine.check_integrity()


def test_recording_between_steps_moves_no_sequence(small: Pair, alone: dict[str, tuple[int, ...]]) -> None:
    """Forms of a step and parts of a form are recorded when they are first needed, beside running requests;
    r3 makes a batch that ran whole steps stop at the logits."""
    ordered = [REQUESTS[index] for index in (4, 0, 3, 1, 2, 5)]
    recorder = CountingRecorder()
    sizes = Settings(draft_tokens=2, slots=2, page_size=8)
    engine = make_device_engine(small.packed, sizes, recorder=recorder, drafts=scripted(alone))
    assert texts(engine.run(ordered)) == alone
    assert recorder.recorded > 4


@pytest.mark.parametrize("chunk", [1, 3, 16])
def test_any_prompt_chunk_gives_the_same_text(
    small: Pair, alone: dict[str, tuple[int, ...]], chunk: int
) -> None:
    engine = make_device_engine(small.packed, Settings(draft_tokens=2, prompt_chunk=chunk))
    assert texts(engine.run(REQUESTS)) == alone


@pytest.mark.parametrize("seed", range(5))
def test_aborts_and_arrivals_at_any_time(small: Pair, alone: dict[str, tuple[int, ...]], seed: int) -> None:
    """What goes on has its own text, what is aborted gave a part of it, and nothing leaks."""
    engine = make_device_engine(
        small.packed, Settings(draft_tokens=3, slots=2, page_size=4), drafts=scripted(alone)
    )
    chance = random.Random(seed)
    waiting = list(REQUESTS)
    found: dict[str, list[int]] = {}
    aborted: set[str] = set()
    while waiting or engine.has_work:
        if waiting and chance.random() < 0.5:
            engine.add(waiting.pop(0))
        for name in list(engine._running):
            if chance.random() < 0.04:
                engine.abort(name)
                aborted.add(name)
        for output in engine.step():
            assert output.request_id not in aborted
            found.setdefault(output.request_id, []).extend(output.token_ids)
    engine.check_integrity()
    for name, text in alone.items():
        got = tuple(found.get(name, ()))
        assert got == (text[: len(got)] if name in aborted else text)


@pytest.mark.parametrize(("counts", "accepted"), [((4, 1, 3, 3, 1, 2, 4), 10), ((4, 1, 0, 3, 0, 2, 4), 0)])
def test_the_number_of_drafts_may_change_at_every_step(
    small: Pair,
    alone: dict[str, tuple[int, ...]],
    counts: tuple[int, ...],
    accepted: int,
) -> None:
    """The stash of a wide window is replayed by a narrow one, also by one without drafts; after that the head
    has not seen all rows, and its sequence drafts no more."""
    engine = make_device_engine(
        small.packed,
        Settings(draft_tokens=4, slots=3),
        drafts=ScriptedDrafts(alone, 320, (None, 2)),
        choice=PatternChoice(counts),
    )
    plain = [each for each in REQUESTS if each.request_id != "r3"]
    found = texts(engine.run(plain))
    assert found == {name: text for name, text in alone.items() if name != "r3"}
    assert sum(engine.acceptance.accepted) > accepted
    assert (engine.acceptance.passes < 45) == (0 not in counts)


def test_a_sequence_with_a_hole_drafts_no_more_beside_one_that_does(small: Pair) -> None:
    """The device is told, for the steps that come are as wide as its neighbour's."""
    first, second = request_of(0, 5, 30, 0.0), request_of(4, 20, 18, 1.3)
    engine = make_device_engine(
        small.packed, Settings(draft_tokens=2, slots=2), choice=PatternChoice([2, 2, 0, *[2] * 60])
    )
    engine.add(first)
    for _ in range(6):
        engine.step()
    acceptance = engine._find("r0").acceptance
    before = acceptance.proposed
    assert before
    engine.add(second)
    late: list[tuple[int, ...]] = []
    while engine.has_work:
        late += [output.acceptance.proposed for output in engine.step() if output.request_id == "r0"]
    assert set(late) == {()}


def test_a_step_is_launched_before_the_last_one_is_read(small: Pair) -> None:
    engine = make_device_engine(small.packed, Settings())
    engine.add(request_of(0, 1, 4, 0.0))
    assert engine.step() == ()
    counts = [sum(len(output.token_ids) for output in engine.step()) for _ in range(4)]
    assert counts == [1, 1, 1, 1]
    assert not engine.has_work
    # No step was launched for what the steps in flight had to finish.
    assert engine.machine._launched == 4


def test_a_request_that_stops_early_costs_a_step_that_nobody_sees(
    small: Pair, alone: dict[str, tuple[int, ...]]
) -> None:
    first = alone["r0"][0]
    parameters = SamplingParameters(max_tokens=9, ignore_eos=True, stop_token_ids=(first,))
    engine = make_device_engine(small.packed, Settings(slots=1))
    stops = Request("stops", REQUESTS[0].prompt_ids, parameters)
    got = engine.run([stops, REQUESTS[0]])
    assert got[0].token_ids == (first,)
    assert got[1].token_ids == alone["r0"]


def test_logits_that_mean_nothing_cost_their_request_alone(
    small: Pair, alone: dict[str, tuple[int, ...]]
) -> None:
    engine = make_device_engine(small.packed, Settings(draft_tokens=2, slots=3))
    engine.add(REQUESTS[0])
    engine.add(REQUESTS[4])
    found: dict[str, list[int]] = {}
    for _ in range(6):
        for output in engine.step():
            found.setdefault(output.request_id, []).extend(output.token_ids)
    slot = engine._running["r4"].sequence.slot
    for state in engine.machine.state.trunk:
        if isinstance(state, DeviceRecurrentState):
            state.recurrent[slot] = torch.nan
    with pytest.raises(EngineFault, match="r4"):
        finish(engine, found)
    engine.add(REQUESTS[1])
    finish(engine, found)
    engine.check_integrity()
    assert tuple(found["r0"]) == alone["r0"]
    assert tuple(found["r1"]) == alone["r1"]
    assert len(found["r4"]) < len(alone["r4"])


def test_logits_that_mean_nothing_cost_a_step_that_stops_at_them(
    small: Pair, alone: dict[str, tuple[int, ...]]
) -> None:
    """The host looks at all rows of such a step; the sequences whose rows are sound move on."""
    engine = make_device_engine(small.packed, Settings(draft_tokens=2, slots=3))
    asked = Request("asks", (5, 6, 7), SamplingParameters(max_tokens=9, ignore_eos=True, logprobs=1))
    engine.add(asked)
    engine.add(REQUESTS[0])
    found: dict[str, list[int]] = {}
    while "r0" not in found:
        for output in engine.step():
            found.setdefault(output.request_id, []).extend(output.token_ids)
    slot = engine._running["asks"].sequence.slot
    for state in engine.machine.state.trunk:
        if isinstance(state, DeviceRecurrentState):
            state.recurrent[slot] = torch.nan
    with pytest.raises(EngineFault, match="asks"):
        finish(engine, found)
    finish(engine, found)
    engine.check_integrity()
    assert tuple(found["r0"]) == alone["r0"]
    assert texts(engine.run(REQUESTS[:2])) == {name: alone[name] for name in ("r0", "r1")}


def test_requests_are_refused_as_by_every_engine(small: Pair) -> None:
    engine = make_device_engine(small.packed, Settings(draft_tokens=2, slots=1, max_length=40))
    engine.add(REQUESTS[0])
    with pytest.raises(UsageError, match="in use"):
        engine.add(REQUESTS[0])
    for bad, message in (
        (Request("x", (), SamplingParameters()), "no tokens"),
        (Request("x", (400,), SamplingParameters()), "outside the vocabulary"),
        (Request("x", (1,) * 40, SamplingParameters()), "context holds 40"),
        (Request("x", (1,), SamplingParameters(), draft_tokens=-1), "draft_tokens is -1"),
    ):
        with pytest.raises(UsageError, match=message):
            engine.add(bad)
    engine.abort("r0")
    assert not engine.has_work
