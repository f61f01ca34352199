"""Where an output ends: limits of length, stop tokens and stop strings, anywhere in an accepted run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from draftproof.engine.request import Completion, Request
from draftproof.models.loading import LoadedModel
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.acceptance import FinishReason
from draftproof.speculation.scripted import anti, oracle
from tests.support.engines import DrafterMaker, Settings, make_engine, nextn, plain, random_prompt, scripted

PROMPT = random_prompt(12, 4)
BASE = Request("r", PROMPT, SamplingParameters(max_tokens=24, ignore_eos=True, seed=1))


@pytest.fixture(scope="module")
def text(small_model: LoadedModel) -> tuple[int, ...]:
    """What the model says without any end; its first tokens are all different, so that each can be a stop."""
    tokens = make_engine(small_model).run([BASE])[0].token_ids
    assert len(set(tokens[:10])) == 10
    return tokens


def with_fields(**fields: object) -> Request:
    return replace(BASE, parameters=replace(BASE.parameters, **fields))  # type: ignore[arg-type]


def run(
    model: LoadedModel, request: Request, maker: DrafterMaker, k: int, max_length: int = 160
) -> Completion:
    engine = make_engine(model, maker, Settings(draft_tokens=k, max_length=max_length, slots=1))
    completion = engine.run([request])[0]
    engine.check_integrity()
    return completion


@pytest.mark.parametrize("max_tokens", range(1, 7))
@pytest.mark.parametrize("draft_tokens", range(1, 6))
def test_a_length_limit_inside_any_window(
    small_model: LoadedModel, text: tuple[int, ...], max_tokens: int, draft_tokens: int
) -> None:
    request = with_fields(max_tokens=max_tokens)
    for maker in (scripted(oracle({"r": text})), scripted(anti({"r": text}, 320)), nextn):
        completion = run(small_model, request, maker, draft_tokens)
        assert completion.token_ids == text[:max_tokens]
        assert completion.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("room", range(1, 7))
@pytest.mark.parametrize("draft_tokens", [1, 3, 5])
def test_the_context_ends(
    small_model: LoadedModel, text: tuple[int, ...], room: int, draft_tokens: int
) -> None:
    for max_tokens in (None, 100):
        completion = run(
            small_model,
            with_fields(max_tokens=max_tokens),
            scripted(oracle({"r": text})),
            draft_tokens,
            max_length=len(PROMPT) + room,
        )
        assert completion.token_ids == text[:room]
        assert completion.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("stop_at", range(9))
@pytest.mark.parametrize("draft_tokens", [2, 5])
def test_a_stop_token_anywhere_in_a_run_even_when_the_run_crosses_the_limit(
    small_model: LoadedModel, text: tuple[int, ...], stop_at: int, draft_tokens: int
) -> None:
    for max_tokens in (stop_at, stop_at + 1, stop_at + 2, 20):
        if max_tokens == 0:
            continue
        request = with_fields(max_tokens=max_tokens, stop_token_ids=(text[stop_at],))
        expected = run(small_model, request, plain, 0)
        stopped = max_tokens > stop_at
        assert expected.token_ids == text[: stop_at + 1 if stopped else max_tokens]
        assert expected.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
        completion = run(small_model, request, scripted(oracle({"r": text})), draft_tokens)
        assert completion.token_ids == expected.token_ids
        assert completion.finish_reason is expected.finish_reason


def test_drafts_after_the_end_are_no_statistics(small_model: LoadedModel, text: tuple[int, ...]) -> None:
    """One token from the prompt, then a window of five drafts whose third is the stop."""
    request = with_fields(stop_token_ids=(text[3],))
    acceptance = run(small_model, request, scripted(oracle({"r": text})), 5).acceptance
    assert acceptance.passes == 1
    assert acceptance.emitted == 3
    assert acceptance.proposed == acceptance.accepted == (1, 1, 1)


@pytest.mark.parametrize("min_tokens", [3, 7])
def test_min_tokens_holds_stop_tokens_back_no_longer_than_it_says(
    small_model: LoadedModel, text: tuple[int, ...], min_tokens: int
) -> None:
    request = with_fields(stop_token_ids=(text[2], text[min_tokens]), min_tokens=min_tokens)
    expected = run(small_model, request, plain, 0)
    assert text[2] not in expected.token_ids[:min_tokens]
    assert len(expected.token_ids) >= min_tokens + 1
    for maker in (
        scripted(oracle({"r": expected.token_ids})),
        scripted(anti({"r": expected.token_ids}, 320)),
        nextn,
    ):
        completion = run(small_model, request, maker, 4)
        assert completion.token_ids == expected.token_ids
        assert completion.finish_reason is expected.finish_reason


def test_end_of_sequence_ends_unless_it_is_ignored(small_model: LoadedModel) -> None:
    end = small_model.target.spec.end_token_ids[0]
    bias = ((end, 100.0),)
    assert run(small_model, with_fields(logit_bias=bias, ignore_eos=False), nextn, 3).token_ids == (end,)
    ignored = run(small_model, with_fields(logit_bias=bias, ignore_eos=True, max_tokens=5), nextn, 3)
    assert ignored.token_ids == (end,) * 5
    assert ignored.finish_reason is FinishReason.LENGTH


class StopsAt:
    """A text watcher that finds its string when the n-th token arrives; records what it was shown."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.shown: list[int] = []

    def push(self, token_ids: Sequence[int]) -> int | None:
        before = len(self.shown)
        self.shown.extend(token_ids)
        return self.count - 1 - before if before < self.count <= len(self.shown) else None


@pytest.mark.parametrize("stop_at", range(1, 9))
@pytest.mark.parametrize("draft_tokens", [2, 5])
def test_a_stop_string_inside_an_accepted_run(
    small_model: LoadedModel, text: tuple[int, ...], stop_at: int, draft_tokens: int
) -> None:
    watcher = StopsAt(stop_at)
    completion = run(small_model, replace(BASE, watcher=watcher), scripted(oracle({"r": text})), draft_tokens)
    assert completion.token_ids == text[:stop_at]
    assert completion.finish_reason is FinishReason.STOP
    assert tuple(watcher.shown) == text[: len(watcher.shown)]


def test_a_watcher_sees_nothing_past_a_stop_token_or_the_limit(
    small_model: LoadedModel, text: tuple[int, ...]
) -> None:
    for fields in ({"max_tokens": 4}, {"stop_token_ids": (text[3],)}):
        watcher = StopsAt(100)
        request = replace(with_fields(**fields), watcher=watcher)
        run(small_model, request, scripted(oracle({"r": text})), 5)
        assert tuple(watcher.shown) == text[:4]
