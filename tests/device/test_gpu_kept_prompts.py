"""Kept prompts and pages as needed on a GPU, on the embedded checkpoint: a prompt that is found again has the
text of the first time to the bit, and whatever is computed in other pieces parts at near-ties only.

python -m pytest -m gpu tests/device/test_gpu_kept_prompts.py
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from draftproof.engine.device_engine import DeviceEngine
from draftproof.engine.request import Completion, Request
from draftproof.models.loading import LoadedModel
from tests.device.embedded import embedded_requests, load_embedded
from tests.device.near_ties import count_partings
from tests.support.device_engines import make_device_engine
from tests.support.engines import Settings, run_alone, texts
from tests.support.random_lives import next_turn

DEVICE = torch.device("cuda")
SETTINGS = Settings(max_length=600, draft_tokens=3, prompt_chunk=48)
SHORT = embedded_requests(4, 16)
PAIRS = [(*SHORT[0].prompt_ids, *each.prompt_ids) for each in SHORT[1:]]
LONG = [
    replace(each, prompt_ids=pair[: len(pair) // 16 * 16 - 3])
    for each, pair in zip(SHORT[1:], PAIRS, strict=True)
]
"""They begin alike. Behind their last page border are more tokens than open an answer, so that a prompt that
is found again is computed in the same pieces as at first."""


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_embedded(torch.bfloat16, packed=True, device=DEVICE)


@pytest.fixture(scope="module")
def exact() -> LoadedModel:
    return load_embedded(torch.float32)


@pytest.fixture(scope="module")
def rounded() -> LoadedModel:
    return load_embedded(torch.bfloat16)


def engine_of(model: LoadedModel, **settings: int) -> DeviceEngine:
    return make_device_engine(model, replace(SETTINGS, **settings), DEVICE)  # type: ignore[arg-type]


def expected(exact: LoadedModel, requests: list[Request]) -> list[Completion]:
    return run_alone(exact, requests, replace(SETTINGS, draft_tokens=0))


@pytest.mark.gpu
@pytest.mark.parametrize("draft_tokens", [0, 3])
def test_a_prompt_that_is_found_has_its_text_again(model: LoadedModel, draft_tokens: int) -> None:
    engine = engine_of(model, draft_tokens=draft_tokens, snapshots=16)
    for each in LONG:
        first, second = engine.run([each])[0], engine.run([each])[0]
        assert second.cached_tokens == (len(each.prompt_ids) - 9) // 16 * 16
        assert (second.token_ids, second.acceptance) == (first.token_ids, first.acceptance)
    engine.check_integrity()


@pytest.mark.gpu
def test_prompts_that_begin_alike_and_next_turns(
    model: LoadedModel, exact: LoadedModel, rounded: LoadedModel
) -> None:
    engine = engine_of(model, snapshots=16)
    first = expected(exact, LONG)
    turns = [
        next_turn(each, answer.token_ids, SHORT[0].prompt_ids[:40], f"{each.request_id}-next")
        for each, answer in zip(LONG, first, strict=True)
    ]
    requests = [*LONG, *turns]
    got = [engine.run([each])[0] for each in requests]
    assert sum(done.cached_tokens > 0 for done in got) > 3
    want = [*first, *expected(exact, turns)]
    assert count_partings(exact, rounded, requests, want, got) < len(requests)


@pytest.mark.gpu
def test_sequences_that_give_up_their_state(
    model: LoadedModel, exact: LoadedModel, rounded: LoadedModel
) -> None:
    requests = [replace(each, parameters=replace(each.parameters, max_tokens=40)) for each in SHORT]
    longest = max(len(each.prompt_ids) for each in requests) + 40 + 8
    engine = engine_of(model, page_size=8, pages=longest // 8 + 3)
    got = list(engine.run(requests))
    assert engine.status().preemptions > 0
    assert count_partings(exact, rounded, requests, expected(exact, requests), got) < len(requests)
    assert texts(got).keys() == {each.request_id for each in requests}
