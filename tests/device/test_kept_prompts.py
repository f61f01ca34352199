"""Device steps with pages as needed and kept prompts: texts and acceptance do not change.

Steps are launched ahead: what is in flight is read before anybody gives up its state, and an output's state
may be kept after a step too many.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from draftproof.engine.device_engine import DeviceEngine
from draftproof.engine.request import Completion, Request
from draftproof.runtime.sampling import SamplingParameters
from draftproof.runtime.scheduler import Admission
from draftproof.runtime.sequence import Sequence as SequenceTokens
from tests.device.conftest import Pair
from tests.support.device_engines import ScriptedDrafts, make_device_engine
from tests.support.engines import Settings, make_engine, plain, random_prompt, run_alone, texts
from tests.support.random_lives import next_turn, random_requests, run_lives

SETTINGS = Settings(draft_tokens=3, slots=3, page_size=8, prompt_chunk=16, snapshots=8)
PROMPT = random_prompt(60, 1)
OTHER = random_prompt(60, 2)


def request(name: str, prompt: tuple[int, ...], **fields: object) -> Request:
    """Hot, so that drafts of a random head are accepted now and then."""
    parameters = {"temperature": 4.0, "seed": 7, "max_tokens": 12, "ignore_eos": True, **fields}
    return Request(name, prompt, SamplingParameters(**parameters))  # type: ignore[arg-type]


def engine_of(small: Pair, draft_tokens: int = 3, snapshots: int = 8) -> DeviceEngine:
    return make_device_engine(small.packed, replace(SETTINGS, draft_tokens=draft_tokens, snapshots=snapshots))


def same(got: Completion, expected: Completion) -> None:
    assert (got.token_ids, got.acceptance) == (expected.token_ids, expected.acceptance)


@pytest.mark.parametrize("draft_tokens", [0, 3])
@pytest.mark.parametrize("common", [1, 8, 9, 16, 17, 32, 33, 59])
def test_cold_warm_and_off_are_the_same(small: Pair, common: int, draft_tokens: int) -> None:
    prompts = [PROMPT, (*PROMPT[:common], *OTHER[common:])]
    cold, engine = engine_of(small, draft_tokens, snapshots=0), engine_of(small, draft_tokens)
    off = [request(str(index), prompt) for index, prompt in enumerate(prompts)]
    cached = []
    for _ in range(2):
        for one in off:
            (got,) = engine.run([one])
            same(got, cold.run([one])[0])
            cached.append(got.cached_tokens)
        engine.check_integrity()
    assert cached[:2] == [0, 48 if common > 48 else 0]
    assert min(cached[2:]) >= 48


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("draft_tokens", [1, 3])
@pytest.mark.parametrize("right", [(None,), (0,), (2, 0, None, 1)])
def test_the_next_turn_begins_at_the_end_of_the_last_one(
    small: Pair, draft_tokens: int, right: tuple[int | None, ...], stops: bool
) -> None:
    """An output that reaches its length ends with nothing in flight; one that meets a stop token ends while
    another step runs, also when drafts after the stop token are right."""
    one = request("turn-0", PROMPT[:13], max_tokens=21)
    (free,) = run_alone(small.plain, [one])
    if stops:
        one = request("turn-0", PROMPT[:13], max_tokens=40, stop_token_ids=(free.token_ids[14],))
    (want,) = run_alone(small.plain, [one])
    # Whatever the model would have said after a stop token, the next turn says it too: as chats do.
    said = free.token_ids[len(want.token_ids) :] if stops else OTHER[:3]
    first = next_turn(one, want.token_ids, said, "turn-1")
    (last,) = run_alone(small.plain, [first])
    # The script knows what comes after a stop token, so that drafts there are right too.
    texts_known = {"turn-0": free.token_ids, "turn-1": last.token_ids}
    drafts = ScriptedDrafts(texts_known, small.plain.target.spec.vocab_size, right)
    engine = make_device_engine(small.packed, replace(SETTINGS, draft_tokens=draft_tokens), drafts=drafts)
    assert engine.run([one])[0].token_ids == want.token_ids
    (got,) = engine.run([first])
    assert got.token_ids == last.token_ids
    kept = len(one.prompt_ids) + len(want.token_ids)
    assert got.cached_tokens >= kept - 2 - draft_tokens
    engine.check_integrity()


class StopAt:
    """Finds a stop string at the n-th token, as only the host can."""

    def __init__(self, count: int) -> None:
        self.left = count

    def push(self, token_ids: Sequence[int]) -> int | None:
        self.left -= len(token_ids)
        return len(token_ids) - 1 + self.left if self.left <= 0 else None


@pytest.mark.parametrize("count", range(9, 15))
@pytest.mark.parametrize("right", [(None,), (2, 0, None, 1)])
def test_an_end_that_only_the_host_finds(small: Pair, right: tuple[int | None, ...], count: int) -> None:
    """The device goes on: the step in flight moves the sequence as every other."""
    free = run_alone(small.plain, [request("turn-0", PROMPT[:13], max_tokens=30)])[0].token_ids
    one = replace(request("turn-0", PROMPT[:13], max_tokens=30), watcher=StopAt(count))
    follow = next_turn(request("turn-1", PROMPT[:13]), free[:count], free[count : count + 8], "turn-1")
    (last,) = run_alone(small.plain, [follow])
    drafts = ScriptedDrafts(
        {"turn-0": free, "turn-1": last.token_ids}, small.plain.target.spec.vocab_size, right
    )
    engine = make_device_engine(small.packed, SETTINGS, drafts=drafts)
    (got,) = engine.run([one])
    assert got.token_ids == free[:count]
    (got,) = engine.run([follow])
    assert got.cached_tokens >= 13 + count - 5
    assert got.token_ids == last.token_ids


def test_the_head_drafts_on_a_kept_output_as_if_it_had_seen_it(small: Pair) -> None:
    cold, engine = engine_of(small, snapshots=0), engine_of(small)
    one = request("turn-0", PROMPT[:13], max_tokens=20)
    for turn in range(1, 4):
        (got,), (want,) = engine.run([one]), cold.run([one])
        same(got, want)
        assert (got.cached_tokens > 0) == (turn > 1)
        one = next_turn(one, got.token_ids, random_prompt(5, turn), f"turn-{turn}")


def test_an_output_without_speculation_is_not_kept(small: Pair) -> None:
    engine = engine_of(small)
    silent = replace(request("silent", PROMPT[:20]), draft_tokens=0)
    (answer,) = engine.run([silent])
    follow = next_turn(request("next", PROMPT[:20]), answer.token_ids, OTHER[:9], "next")
    (got,) = engine.run([follow])
    assert got.cached_tokens == 8
    same(got, engine_of(small, snapshots=0).run([follow])[0])


REQUESTS = [
    Request(
        f"r{number}",
        random_prompt(10 + 3 * number, number),
        SamplingParameters(
            temperature=(0.0, 0.8, 4.0)[number % 3],
            seed=number,
            max_tokens=30,
            min_tokens=20 if number == 3 else 0,
            ignore_eos=True,
            frequency_penalty=0.5 if number == 1 else 0.0,
        ),
    )
    for number in range(4)
]


@pytest.mark.parametrize("draft_tokens", [0, 3])
@pytest.mark.parametrize("chosen", [(0, 2), (0, 1, 2, 3)])
def test_texts_do_not_change_when_a_sequence_gives_up_its_state(
    small: Pair, chosen: tuple[int, ...], draft_tokens: int
) -> None:
    """With and without requests whose tokens the host chooses."""
    requests = [REQUESTS[index] for index in chosen]
    settings = Settings(draft_tokens=draft_tokens, slots=4, page_size=4, prompt_chunk=8, pages=18)
    engine = make_device_engine(small.packed, settings)
    completions = engine.run(requests)
    assert texts(completions) == texts(run_alone(small.plain, requests))
    assert engine.status().preemptions > 0
    assert [sum(one.acceptance.proposed) > 0 for one in completions] == [draft_tokens > 0] * len(requests)
    engine.check_integrity()


def test_what_is_in_flight_is_read_before_a_sequence_gives_up_its_state(
    small: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(draft_tokens=3, slots=4, page_size=4, prompt_chunk=8, pages=18)
    engine = make_device_engine(small.packed, settings)
    given_up = []
    preempt = engine._scheduler.preempt

    def watched(sequence: SequenceTokens) -> None:
        given_up.append((sequence.in_flight_rows, len(engine._flights)))
        preempt(sequence)

    monkeypatch.setattr(engine._scheduler, "preempt", watched)
    engine.run([REQUESTS[0], REQUESTS[2]])
    assert given_up
    assert set(given_up) == {(0, 0)}


def test_the_device_knows_what_is_left_of_an_output_that_is_computed_again(
    small: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host would find the end too, a step later."""
    settings = Settings(draft_tokens=3, slots=4, page_size=4, prompt_chunk=8, pages=22)
    engine = make_device_engine(small.packed, settings)
    progress, left = engine.machine.state.progress, []
    open_slot = engine._open

    def watched(admission: Admission) -> None:
        open_slot(admission)
        slot = admission.sequence.slot
        left.append((int(progress.remaining[slot]), int(progress.unstoppable[slot])))
        assert left[-1][0] == admission.sequence.remaining
        assert left[-1][1] == left[-1][0] - 10

    monkeypatch.setattr(engine, "_open", watched)
    requests = [replace(each, parameters=replace(each.parameters, min_tokens=20)) for each in REQUESTS[::2]]
    engine.run(requests)
    assert len(left) > 2
    assert min(left) < (30, 20)


def test_a_kept_state_is_restored_on_the_device(small: Pair) -> None:
    """Also where it stands: steps read that there."""
    engine = engine_of(small)
    engine.run([request("a", PROMPT)])
    engine.add(request("b", PROMPT))
    admission = engine._scheduler.admit()
    assert admission is not None
    with torch.inference_mode():
        engine._open(admission)
    slot = admission.sequence.slot
    assert int(engine.machine.state.progress.lengths[slot]) == admission.sequence.committed == 48
    assert int(engine.machine.state.progress.pending[slot]) == 0


@pytest.mark.parametrize("seed", range(2))
def test_fifty_random_lives(small: Pair, seed: int) -> None:
    requests = random_requests(30, seed=5, longest=30, most_tokens=24)
    loop = make_engine(small.plain, plain)
    alone = texts([loop.run([one])[0] for one in requests])
    settings = Settings(
        draft_tokens=(3, 2)[seed],
        slots=4,
        page_size=(4, 8)[seed],
        prompt_chunk=(7, 32)[seed],
        pages=(24, 13)[seed],
        snapshots=(5, 12)[seed],
    )
    engine = make_device_engine(small.packed, settings)
    finished = run_lives(engine, requests, alone, 50, random.Random(seed))
    status = engine.status()
    assert finished > 25
    assert status.preemptions > 0
    assert status.prefix_hit_tokens > 50
