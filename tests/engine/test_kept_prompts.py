"""Prompts that begin alike: what is kept gives the text, and the acceptance, of what is computed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from draftproof.engine.engine import Engine
from draftproof.engine.request import Completion, Request
from draftproof.errors import EngineFault
from draftproof.kernels.gated_delta_step.reference import RecurrentState
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from tests.support.engines import Settings, make_engine, nextn, plain, random_prompt, run_alone, texts
from tests.support.random_lives import next_turn, random_requests, run_lives

SETTINGS = Settings(draft_tokens=3, slots=3, page_size=8, prompt_chunk=16, snapshots=8)
PROMPT = random_prompt(60, 1)
OTHER = random_prompt(60, 2)


def request(name: str, prompt: tuple[int, ...], temperature: float = 4.0, **fields: object) -> Request:
    """Hot, so that drafts of a random head are accepted now and then."""
    parameters = SamplingParameters(
        temperature=temperature,
        seed=7,
        max_tokens=12,
        ignore_eos=True,
        **fields,  # type: ignore[arg-type]
    )
    return Request(name, prompt, parameters)


def engine_of(model: LoadedModel, speculates: bool, settings: Settings = SETTINGS) -> Engine:
    if speculates:
        return make_engine(model, nextn, settings)
    return make_engine(model, plain, replace(settings, draft_tokens=0))


def same(got: Completion, expected: Completion) -> None:
    assert (got.token_ids, got.acceptance) == (expected.token_ids, expected.acceptance)


@pytest.fixture(scope="module")
def cold(small_model: LoadedModel) -> Engine:
    """With speculation, and without kept prompts."""
    return engine_of(small_model, True, replace(SETTINGS, snapshots=0))


@pytest.mark.parametrize("speculates", [False, True])
@pytest.mark.parametrize("common", [1, 7, 8, 9, 15, 16, 17, 18, 31, 32, 33, 40, 59])
def test_cold_warm_and_off_are_the_same(
    small_model: LoadedModel, cold: Engine, common: int, speculates: bool
) -> None:
    """Two prompts that part after `common` tokens, around page and chunk borders, each three times: the first
    time the second one finds what the first one left, then where they part, then their own ends."""
    prompts = [PROMPT, (*PROMPT[:common], *OTHER[common:])]
    engine = engine_of(small_model, speculates)
    off = [request(str(index), prompt) for index, prompt in enumerate(prompts)]
    expected = run_alone(small_model, off) if not speculates else cold.run(off)
    cached = []
    for _ in range(3):
        for one, want in zip(off, expected, strict=True):
            (got,) = engine.run([one])
            same(got, want)
            cached.append(got.cached_tokens)
        engine.check_integrity()
    # 48 is the last border of a prompt of 60. The second time a prompt branches off from its own output, kept
    # past 56.
    known = 56 if common > 56 else 48
    assert cached == [0, 48 if common > 48 else 0, known, known, 56, 56]


def test_where_prompts_part_the_third_one_begins(small_model: LoadedModel, cold: Engine) -> None:
    engine = engine_of(small_model, True)
    found = []
    for number in range(4):
        one = request(f"r{number}", (*PROMPT[:35], *random_prompt(20, 10 + number)))
        same(engine.run([one])[0], cold.run([one])[0])
        found.append(engine._scheduler.counts.hit_tokens)
    assert found == [0, 0, 32, 64]


@pytest.mark.parametrize("speculates", [False, True])
@pytest.mark.parametrize("first", [9, 16, 23])
def test_the_next_turn_begins_at_the_end_of_the_last_one(
    small_model: LoadedModel, cold: Engine, first: int, speculates: bool
) -> None:
    """All but its last window, whatever page border that is near."""
    engine = engine_of(small_model, speculates)
    one = request("turn-0", PROMPT[:first])
    previous = 0
    for turn in range(1, 4):
        (got,) = engine.run([one])
        (want,) = cold.run([one])
        assert got.token_ids == want.token_ids
        if speculates:
            same(got, want)
        assert got.cached_tokens >= previous - 1 - 4
        previous = len(one.prompt_ids) + len(got.token_ids)
        one = next_turn(one, got.token_ids, random_prompt(5, turn), f"turn-{turn}")
    engine.check_integrity()


def test_an_output_without_speculation_is_not_kept_for_a_head_that_has_not_seen_it(
    small_model: LoadedModel, cold: Engine
) -> None:
    engine = engine_of(small_model, True)
    silent = replace(request("silent", PROMPT[:20]), draft_tokens=0)
    (answer,) = engine.run([silent])
    follow = next_turn(request("next", PROMPT[:20]), answer.token_ids, OTHER[:9], "next")
    (got,) = engine.run([follow])
    assert got.cached_tokens == 8
    same(got, cold.run([follow])[0])


def test_a_request_without_speculation_leaves_a_prompt_for_those_with_it(
    small_model: LoadedModel, cold: Engine
) -> None:
    engine = engine_of(small_model, True)
    engine.run([replace(request("silent", PROMPT), draft_tokens=0)])
    (got,) = engine.run([request("loud", PROMPT)])
    assert got.cached_tokens == 48
    same(got, cold.run([request("loud", PROMPT)])[0])


def test_nothing_of_an_aborted_prompt_is_kept(small_model: LoadedModel) -> None:
    engine = engine_of(small_model, True)
    engine.add(request("gone", PROMPT))
    for _ in range(3):
        engine.step()
    assert engine.status().snapshots_used == 1
    engine.abort("gone")
    engine.check_integrity()
    assert engine.run([request("new", PROMPT)])[0].cached_tokens == 0


def test_nothing_is_kept_after_a_reset_and_running_requests_go_on(
    small_model: LoadedModel, cold: Engine
) -> None:
    engine = engine_of(small_model, True)
    engine.run([request("a", PROMPT)])
    engine.add(request("b", PROMPT))
    assert engine.step() == ()
    engine.reset_prefix_cache()
    assert engine.status().pages_cached == 0
    engine.add(request("c", PROMPT))
    tokens: list[int] = []
    while engine.has_work:
        for output in engine.step():
            if output.request_id == "b":
                tokens.extend(output.token_ids)
            assert output.cached_tokens == {"b": 48, "c": 0}[output.request_id]
    assert tuple(tokens) == cold.run([request("b", PROMPT)])[0].token_ids
    engine.check_integrity()


def test_a_fault_of_one_request_leaves_the_pages_that_others_share(
    small_model: LoadedModel, cold: Engine
) -> None:
    engine = engine_of(small_model, True)
    engine.run([request("first", PROMPT)])
    for name in ("lost", "sound"):
        engine.add(request(name, PROMPT, 0.0))
    found: list[int] = []
    while not found:
        found += [
            token for output in engine.step() if output.request_id == "sound" for token in output.token_ids
        ]
    slot = engine._find("lost").sequence.slot
    for state in engine.store.trunk:
        if isinstance(state, RecurrentState):
            state.recurrent[slot] = torch.nan
    with pytest.raises(EngineFault, match="lost"):
        engine.step()
    while engine.has_work:
        found += [token for output in engine.step() for token in output.token_ids]
    assert tuple(found) == cold.run([request("sound", PROMPT, 0.0)])[0].token_ids
    engine.check_integrity()
    assert engine.run([request("again", PROMPT)])[0].cached_tokens == 0


def test_the_status_shows_what_is_kept_and_found(small_model: LoadedModel) -> None:
    engine = engine_of(small_model, True)
    for name in "ab":
        engine.run([request(name, PROMPT)])
    status = engine.status()
    assert (status.prefix_queried_tokens, status.prefix_hit_tokens) == (120, 48)
    assert status.prompt_tokens == 60 + 12
    assert status.generated_tokens == 24
    assert (status.running, status.waiting, status.slots_used, status.pages_used) == (0, 0, 0, 0)
    assert status.pages_cached > 6
    assert 0 < status.snapshots_used < status.snapshots_total == 8


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return random_requests(50, seed=5, longest=30, most_tokens=24)


@pytest.fixture(scope="module")
def alone(small_model: LoadedModel, requests: list[Request]) -> dict[str, tuple[int, ...]]:
    engine = make_engine(small_model, plain)
    return texts([engine.run([one])[0] for one in requests])


@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_random_lives(
    small_model: LoadedModel, requests: list[Request], alone: dict[str, tuple[int, ...]], seed: int
) -> None:
    """In pools so small that sequences give way and snapshots are forgotten."""
    settings = Settings(
        draft_tokens=(3, 0, 2)[seed],
        slots=4,
        page_size=(4, 8, 5)[seed],
        prompt_chunk=(7, 16, 64)[seed],
        pages=(20, 11, 16)[seed],
        snapshots=(6, 3, 12)[seed],
    )
    engine = make_engine(small_model, nextn if settings.draft_tokens else plain, settings)
    finished = run_lives(engine, requests, alone, 100, random.Random(seed))
    status = engine.status()
    assert finished > 50
    assert status.preemptions > 3
    assert status.prefix_hit_tokens > 100
