"""Device steps give the step loop's text: every batch size and K, every sampling field, every acceptance."""

from __future__ import annotations

import pytest

from draftproof.engine.request import Completion, Request
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.acceptance import FinishReason
from tests.device.conftest import Pair
from tests.engine.test_same_text import check, make_requests
from tests.support.device_engines import ScriptedDrafts, make_device_engine
from tests.support.engines import Settings, make_engine, nextn, random_prompt, run_alone, texts

LENGTHS = (17, 1, 33, 5, 16, 2, 9, 31, 12)
"""Prompts of the requests: one token, one page, a page and one, two pages less one, ..."""


def request(number: int, max_tokens: int = 20, **fields: object) -> Request:
    parameters = {
        "temperature": (0.0, 0.8, 4.0)[number % 3],
        "seed": number,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        **fields,
    }
    prompt = random_prompt(LENGTHS[number % len(LENGTHS)], number)
    return Request(f"r{number}", prompt, SamplingParameters(**parameters))  # type: ignore[arg-type]


REQUESTS = [request(number, max_tokens=12 + 3 * number) for number in range(9)]


@pytest.fixture(scope="module")
def alone(small: Pair) -> dict[str, tuple[int, ...]]:
    return texts(run_alone(small.plain, REQUESTS))


@pytest.mark.parametrize(
    ("draft_tokens", "slots"),
    [(0, 1), (0, 4), (0, 9), (1, 2), (1, 7), (2, 3), (2, 8), (3, 1), (3, 5), (3, 9), (4, 6), (5, 4), (5, 9)],
)
def test_every_batch_size_and_number_of_drafts(
    small: Pair, alone: dict[str, tuple[int, ...]], draft_tokens: int, slots: int
) -> None:
    """Batches of 3, 5, 6, 7 and 9 leave places of their bucket unused."""
    settings = Settings(draft_tokens=draft_tokens, slots=slots, prompt_chunk=16)
    engine = make_device_engine(small.packed, settings)
    assert texts(engine.run(REQUESTS)) == alone
    engine.check_integrity()


@pytest.fixture(scope="module")
def requests(mixture: Pair) -> list[Request]:
    return make_requests(mixture.plain)


@pytest.fixture(scope="module")
def expected(mixture: Pair, requests: list[Request]) -> dict[str, Completion]:
    return {completion.request_id: completion for completion in run_alone(mixture.plain, requests)}


@pytest.mark.parametrize(("draft_tokens", "slots"), [(0, 17), (3, 1), (3, 6), (2, 17)])
def test_every_sampling_field(
    mixture: Pair,
    requests: list[Request],
    expected: dict[str, Completion],
    draft_tokens: int,
    slots: int,
) -> None:
    """Some of these need the host for each token: they run beside others, and later the others run alone."""
    settings = Settings(draft_tokens=draft_tokens, slots=slots, prompt_chunk=16)
    engine = make_device_engine(mixture.packed, settings)
    check(engine.run(requests), expected)
    engine.check_integrity()


def test_the_head_drafts_as_it_does_in_the_step_loop(small: Pair) -> None:
    """With the shared noise at a high temperature even a random head is right now and then, so that equal
    counts mean equal drafts."""
    hot = [request(number, 60, temperature=4.0) for number in range(4)]
    engine = make_device_engine(small.packed, Settings(draft_tokens=3))
    loop = make_engine(small.plain, nextn, Settings(draft_tokens=3))
    for got, want in zip(engine.run(hot), loop.run(hot), strict=True):
        assert got.token_ids == want.token_ids
        assert sum(want.acceptance.accepted) > 5
        assert got.acceptance == want.acceptance
    assert engine.acceptance == loop.acceptance


@pytest.mark.parametrize("draft_tokens", [1, 3, 5])
@pytest.mark.parametrize(
    "accepted", [(None,), (0,), (2, 0, 5, 1)], ids=["all right", "all wrong", "now and then"]
)
def test_any_acceptance_gives_the_same_text(
    small: Pair,
    alone: dict[str, tuple[int, ...]],
    draft_tokens: int,
    accepted: tuple[int | None, ...],
) -> None:
    drafts = ScriptedDrafts(alone, small.plain.target.spec.vocab_size, accepted)
    settings = Settings(draft_tokens=draft_tokens, slots=5, page_size=4, prompt_chunk=8)
    engine = make_device_engine(small.packed, settings, drafts=drafts)
    completions = engine.run(REQUESTS)
    assert texts(completions) == alone
    engine.check_integrity()
    counted = completions[8].acceptance
    assert counted.emitted == 35
    if accepted == (0,):
        assert (counted.passes, sum(counted.accepted)) == (35, 0)
    if accepted == (None,):
        assert counted.passes == -(-35 // (draft_tokens + 1))


def test_requests_with_other_draft_limits_share_steps(small: Pair, alone: dict[str, tuple[int, ...]]) -> None:
    """The number of drafts of a step is the largest of its batch, so it changes as requests come and go."""
    limits = (0, 1, 4, None, 0, 2, 0, 1, 3)
    limited = [
        Request(each.request_id, each.prompt_ids, each.parameters, limit)
        for each, limit in zip(REQUESTS, limits, strict=True)
    ]
    for order in (limited, limited[::-1]):
        drafts = ScriptedDrafts(alone, small.plain.target.spec.vocab_size, (None, 1))
        engine = make_device_engine(small.packed, Settings(draft_tokens=4, slots=3), drafts=drafts)
        completions = engine.run(order)
        assert texts(completions) == alone
        counts = {completion.request_id: completion.acceptance for completion in completions}
        assert counts["r0"].proposed == ()
        assert len(counts["r1"].proposed) == 1


@pytest.mark.parametrize("min_tokens", [0, 10])
def test_ends_are_found_on_the_device(
    small: Pair, alone: dict[str, tuple[int, ...]], min_tokens: int
) -> None:
    asked = request(6, 30, stop_token_ids=alone["r6"][7:20:4], min_tokens=min_tokens)
    (want,) = run_alone(small.plain, [asked])
    assert min_tokens or (len(want.token_ids), want.finish_reason) == (8, FinishReason.STOP)
    for draft_tokens in (0, 3):
        engine = make_device_engine(small.packed, Settings(draft_tokens=draft_tokens))
        (got,) = engine.run([asked])
        assert (got.token_ids, got.finish_reason) == (want.token_ids, want.finish_reason)
