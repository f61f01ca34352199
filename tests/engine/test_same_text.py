"""Speculation never changes the text: every drafter, K and sampling field, against plain decoding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.engine.config import MAX_DRAFT_TOKENS
from draftproof.engine.request import Completion, Request
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.acceptance import FinishReason
from draftproof.speculation.scripted import anti, empty, oracle, pattern
from tests.support.engines import (
    DrafterMaker,
    Settings,
    make_engine,
    nextn,
    plain,
    random_prompt,
    run_alone,
    scripted,
    texts,
)

LENGTH = 36
B34 = (2, None, 1, None, 0, None)


def request(name: str, prompt_length: int, **fields: object) -> Request:
    seed = sum(map(ord, name))
    parameters = {"seed": seed, "max_tokens": LENGTH, "ignore_eos": True, **fields}
    return Request(name, random_prompt(prompt_length, seed), SamplingParameters(**parameters))  # type: ignore[arg-type]


def make_requests(model: LoadedModel) -> list[Request]:
    """Every field of the sampling parameters, alone and together, greedy and not."""
    requests = [
        request("greedy", 17),
        request("cool", 5, temperature=0.8),
        request("warm", 33, temperature=1.3),
        request("hot", 16, temperature=4.0),
        request("repetition", 9, repetition_penalty=1.4),
        request("presence and frequency", 21, temperature=0.8, presence_penalty=0.9, frequency_penalty=0.7),
        request("all penalties", 3, repetition_penalty=1.2, frequency_penalty=-0.8, temperature=1.3),
        request("top k", 2, temperature=1.3, top_k=5),
        request("top p, min p", 12, temperature=1.3, top_p=0.8, min_p=0.02),
        request("bias", 8, logit_bias=((7, 3.0), (11, -100.0), (19, 4.5))),
        request("end of sequence", 6, temperature=1.3, ignore_eos=False, logit_bias=((300, 4.0),)),
        request("logprobs", 14, logprobs=3),
        request("logprobs, warm", 1, logprobs=0, temperature=0.8, repetition_penalty=1.1, top_k=30),
        replace(request("never drafts", 10), draft_tokens=0),
        replace(request("one draft", 18, temperature=0.8), draft_tokens=1),
    ]
    # Stop tokens that will occur: the text without them says which.
    for name, min_tokens in (("stops", 0), ("stops late", 8)):
        base = request(name, 11, temperature=0.8)
        text = run_alone(model, [base])[0].token_ids
        fields = {"stop_token_ids": (text[5], text[20], text[30]), "min_tokens": min_tokens}
        requests.append(replace(base, parameters=replace(base.parameters, **fields)))
    return requests


@pytest.fixture(scope="module")
def requests(model: LoadedModel) -> list[Request]:
    return make_requests(model)


@pytest.fixture(scope="module")
def expected(model: LoadedModel, requests: list[Request]) -> dict[str, Completion]:
    return {completion.request_id: completion for completion in run_alone(model, requests)}


def check(completions: tuple[Completion, ...], expected: dict[str, Completion]) -> None:
    """Tokens and reasons equal; log probabilities equal up to rounding."""
    for got in completions:
        want = expected[got.request_id]
        assert got.token_ids == want.token_ids, got.request_id
        assert got.finish_reason == want.finish_reason, got.request_id
        assert [item.token_id for item in got.logprobs] == [item.token_id for item in want.logprobs]
        for ours, theirs in zip(got.logprobs, want.logprobs, strict=True):
            assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
            assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]
            assert [value for _, value in ours.top] == pytest.approx(
                [value for _, value in theirs.top], abs=1e-4
            )


def drafter_of(name: str, model: LoadedModel, expected: dict[str, Completion]) -> DrafterMaker:
    references = {request_id: completion.token_ids for request_id, completion in expected.items()}
    vocabulary = model.target.spec.vocab_size
    makers = {
        "none": plain,
        "nextn": nextn,
        "oracle": scripted(oracle(references)),
        "anti": scripted(anti(references, vocabulary)),
        "empty": scripted(empty),
        "two, none, one, none, zero, none": scripted(pattern(references, vocabulary, B34)),
        "all, zero, three": scripted(pattern(references, vocabulary, [5, 0, 3])),
    }
    return makers[name]


def test_the_requests_are_worth_testing(requests: list[Request], expected: dict[str, Completion]) -> None:
    """Texts with variety, some that stop early, some that do not."""
    assert {completion.finish_reason for completion in expected.values()} == set(FinishReason)
    assert expected["stops"].finish_reason is FinishReason.STOP
    assert len(expected["stops"].token_ids) == 6
    assert len(expected["stops late"].token_ids) > 8
    for name in ("greedy", "cool", "warm", "top k"):
        assert len(set(expected[name].token_ids)) > 5
    assert all(token != 11 for token in expected["bias"].token_ids)
    different = {completion.token_ids for completion in expected.values()}
    assert len(different) == len(requests)


@pytest.mark.parametrize("draft_tokens", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "drafter", ["nextn", "oracle", "anti", "empty", "two, none, one, none, zero, none", "all, zero, three"]
)
def test_same_text(
    model: LoadedModel,
    requests: list[Request],
    expected: dict[str, Completion],
    drafter: str,
    draft_tokens: int,
) -> None:
    settings = Settings(draft_tokens=draft_tokens, slots=6, prompt_chunk=16)
    engine = make_engine(model, drafter_of(drafter, model, expected), settings)
    check(engine.run(requests), expected)
    engine.check_integrity()


@pytest.mark.parametrize("drafter", ["nextn", "oracle", "anti"])
def test_same_text_with_as_many_drafts_as_there_may_be(
    model: LoadedModel, requests: list[Request], expected: dict[str, Completion], drafter: str
) -> None:
    settings = Settings(draft_tokens=MAX_DRAFT_TOKENS, slots=3)
    check(make_engine(model, drafter_of(drafter, model, expected), settings).run(requests[:6]), expected)


def test_same_text_of_a_batch_without_speculation(
    model: LoadedModel, requests: list[Request], expected: dict[str, Completion]
) -> None:
    check(make_engine(model, plain, Settings(slots=20)).run(requests), expected)


@pytest.mark.parametrize(("drafter", "accepted"), [("oracle", (9, 9, 8)), ("anti", (0, 0, 0)), ("empty", ())])
def test_acceptance_is_what_the_script_says(
    model: LoadedModel,
    requests: list[Request],
    expected: dict[str, Completion],
    drafter: str,
    accepted: tuple[int, ...],
) -> None:
    """An engine that never accepts would give the right text too.

    36 tokens, one from the prompt: 35 in windows of 4 are 8 full ones and one of 3, whose last token is
    its second draft or its bonus.
    """
    wanted = [request for request in requests if request.request_id in ("greedy", "cool", "all penalties")]
    maker = drafter_of(drafter, model, expected)
    for completion in make_engine(model, maker, Settings(draft_tokens=3)).run(wanted):
        assert completion.acceptance.accepted == accepted
        assert completion.acceptance.emitted == LENGTH - 1
        assert completion.acceptance.passes == (9 if drafter == "oracle" else LENGTH - 1)


def test_requests_with_fewer_drafts_than_the_engine_get_fewer(
    model: LoadedModel, requests: list[Request], expected: dict[str, Completion]
) -> None:
    engine = make_engine(model, drafter_of("oracle", model, expected), Settings(draft_tokens=4, slots=20))
    counts = {completion.request_id: completion.acceptance for completion in engine.run(requests)}
    assert counts["never drafts"].proposed == ()
    assert len(counts["one draft"].proposed) == 1
    assert len(counts["greedy"].proposed) == 4


def test_the_head_drafts_better_when_it_shares_the_noise(model: LoadedModel) -> None:
    """At a high temperature both distributions are flat: independent draws would almost never agree."""
    requests = [request(f"hot {number}", 8, temperature=4.0) for number in range(4)]
    engine = make_engine(model, nextn, Settings(draft_tokens=2))
    assert texts(engine.run(requests)) == texts(run_alone(model, requests))
    assert engine.acceptance.unconditional_rates[0] > 20 / model.target.spec.vocab_size


def test_seeds_decide_the_text(model: LoadedModel) -> None:
    base = request("seeded", 9, temperature=1.3)
    again, other = (
        replace(base, request_id="again"),
        replace(base, request_id="other", parameters=replace(base.parameters, seed=1)),
    )
    alone = {name: run_alone(model, [one])[0].token_ids for name, one in (("base", base), ("other", other))}
    assert alone["base"] != alone["other"]
    engine = make_engine(model, nextn, Settings(draft_tokens=3, slots=2))
    for number in range(3):
        engine.run([request(f"before {number}", 4, temperature=1.3)])
    together = texts(engine.run([other, base, again]))
    assert together == {"seeded": alone["base"], "again": alone["base"], "other": alone["other"]}


def test_requests_without_a_seed_differ(model: LoadedModel) -> None:
    prompt = random_prompt(9, 0)
    requests = [
        Request(name, prompt, SamplingParameters(temperature=1.3, max_tokens=12, ignore_eos=True))
        for name in ("a", "b")
    ]
    engine = make_engine(model, nextn, Settings(draft_tokens=2))
    found = texts(engine.run(requests))
    assert found["a"] != found["b"]
