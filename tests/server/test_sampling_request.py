"""How a body's fields reach the sampler."""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from draftproof.server.app import create_app
from draftproof.server.settings import SamplingDefaults, ServerSettings
from draftproof.text.tokenizer import Tokenizer
from tests.server.conftest import Post
from tests.support.fake_engine import FakeEngineClient


def test_every_field_reaches_the_sampler(complete: Post, engine: FakeEngineClient) -> None:
    fields = {
        "temperature": 0.5,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": -0.4,
        "min_tokens": 3,
        "max_tokens": 30,
        "ignore_eos": True,
        "logprobs": 4,
        "seed": 2**64 - 1,
    }
    complete(**fields, logit_bias={"7": -100, "8": 1.5}, stop="END", stop_token_ids=[9])
    parameters = engine.requests[0].parameters
    assert {name: getattr(parameters, name) for name in fields} == fields
    assert parameters.logit_bias == ((7, -100.0), (8, 1.5))
    assert parameters.stop_strings == ("END",)
    assert parameters.stop_token_ids == (9,)


def test_null_counts_as_left_out(complete: Post, chat: Post, engine: FakeEngineClient) -> None:
    names = ["temperature", "top_p", "stop", "n", "logit_bias", "stream", "stream_options", "seed", "model"]
    for post in (complete, chat):
        assert post(**dict.fromkeys(names)).status_code == 200
    assert engine.requests[0].parameters.temperature == 1.0


def test_left_out_fields_get_the_servers_values(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    defaults = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20, min_p=0.05, repetition_penalty=1.1)
    http = TestClient(create_app(engine, tokenizer, None, replace(settings, sampling=defaults)))
    http.post("/v1/completions", json={"prompt": "Hi"})
    http.post("/v1/completions", json={"prompt": "Hi", "temperature": 0, "top_k": 0})
    left_out, given = (request.parameters for request in engine.requests)
    assert (left_out.temperature, left_out.top_p, left_out.top_k) == (0.6, 0.95, 20)
    assert (left_out.min_p, left_out.repetition_penalty) == (0.05, 1.1)
    assert (given.temperature, given.top_k) == (0.0, 0)


def test_requests_without_a_seed_differ(complete: Post, engine: FakeEngineClient) -> None:
    complete()
    complete()
    first, second = (request.parameters.seed for request in engine.requests)
    assert first != second


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"speculative": True}, None),
        ({"speculative": False}, 0),
        ({"draft_tokens": 2}, 2),
        ({"draft_tokens": 0}, 0),
        ({"speculative": False, "draft_tokens": 0}, 0),
    ],
)
def test_drafts_are_limited_by_request(
    complete: Post, engine: FakeEngineClient, fields: dict[str, object], limit: int | None
) -> None:
    assert complete(**fields).status_code == 200
    assert engine.requests[0].draft_tokens == limit


def test_special_tokens_are_shown_when_asked(complete: Post, engine: FakeEngineClient) -> None:
    complete()
    complete(skip_special_tokens=False)
    assert [request.shows_special_tokens for request in engine.requests] == [False, True]


def test_the_servers_deadline_goes_with_each_request(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    http = TestClient(create_app(engine, tokenizer, None, replace(settings, request_seconds=5.0)))
    http.post("/v1/completions", json={"prompt": "Hi"})
    assert engine.requests[0].deadline_seconds == 5.0
