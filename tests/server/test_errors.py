"""Whatever goes wrong, the answer is an error in OpenAI's shape with the right status."""

from __future__ import annotations

import json
import logging

import pytest
from starlette.testclient import TestClient

from draftproof.serving.client import GenerationFailed, QueueFull
from draftproof.serving.messages import FailureKind
from tests.server.conftest import Post
from tests.support.fake_engine import Answer, FakeEngineClient, Piece

FAILURES = [
    (
        QueueFull("16 requests wait, which is the most. Try again later", 3),
        429,
        "rate_limit_error",
        "queue_full",
    ),
    (GenerationFailed(FailureKind.REFUSED, "no"), 400, "invalid_request_error", "refused"),
    (GenerationFailed(FailureKind.FAULT, "not a number"), 500, "server_error", "fault"),
    (GenerationFailed(FailureKind.DEADLINE, "too late"), 504, "timeout_error", "deadline"),
    (GenerationFailed(FailureKind.STOPPED, "gone"), 503, "service_unavailable_error", "stopped"),
    (RuntimeError("a secret"), 500, "server_error", "internal_error"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("failure", "status", "kind", "code"), FAILURES)
def test_a_failure_before_the_first_token_has_a_status(
    complete: Post,
    engine: FakeEngineClient,
    failure: Exception,
    status: int,
    kind: str,
    code: str,
    stream: bool,
) -> None:
    engine.answer = lambda request: Answer((), error=failure)
    answer = complete(stream=stream)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == (kind, code)
    assert "secret" not in error["message"]
    assert answer.headers["content-type"] == "application/json"


def test_a_full_queue_says_when_to_come_back(complete: Post, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer((), error=QueueFull("full", 3))
    assert complete().headers["retry-after"] == "3"


@pytest.mark.parametrize(("failure", "status", "kind", "code"), FAILURES)
def test_a_failure_in_a_stream_is_its_last_event(
    complete: Post, engine: FakeEngineClient, failure: Exception, status: int, kind: str, code: str
) -> None:
    engine.answer = lambda request: Answer((Piece("begun"),), error=failure)
    answer = complete(stream=True)
    assert answer.status_code == 200
    text, failed = (json.loads(event.removeprefix("data: ")) for event in answer.text.split("\n\n") if event)
    assert text["choices"][0]["text"] == "begun"
    assert (failed["error"]["type"], failed["error"]["code"]) == (kind, code)
    assert "secret" not in answer.text


def test_a_defect_is_logged_with_its_trace(
    complete: Post, engine: FakeEngineClient, caplog: pytest.LogCaptureFixture
) -> None:
    engine.answer = lambda request: Answer((), error=RuntimeError("a secret"))
    with caplog.at_level(logging.ERROR, "draftproof.server"):
        complete()
    assert "RuntimeError: a secret" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/v1/nothing", 404, "there is no /v1/nothing here"),
        ("GET", "/v1/completions", 405, "/v1/completions does not take GET"),
        ("POST", "/v1/models", 405, "/v1/models does not take POST"),
    ],
)
def test_routes_that_are_not_there(http: TestClient, method: str, path: str, status: int, words: str) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "the body is empty; send a JSON object"),
        (b"null", "the body is empty; send a JSON object"),
        (b"[]", "the body is an array; send a JSON object"),
        (b"true", "the body is a boolean; send a JSON object"),
        (b'"prompt"', "the body is a string; send a JSON object"),
        (b"{}", "prompt: Field required"),
        (b"{", "the body is no JSON"),
        (b'{"prompt": "\xff"}', "the body is no JSON"),
        (b'{"prompt": "\\ud800"}', "the body is no JSON"),
        (b'{"prompt": "x", "temperature": NaN}', "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
        (b'{"prompt": "x", "a": ' + b"[" * 100 + b"]" * 100 + b"}", "deeper than 100 levels"),
        (b'{"prompt": "x", "n": 1' + b"0" * 500 + b"}", "the body is no JSON"),
        (b'{"prompt": "x", "n": 1' + b"0" * 50 + b"}", "n: "),
    ],
)
def test_bodies_that_are_no_request(http: TestClient, body: bytes, words: str) -> None:
    answer = http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_a_body_has_to_call_itself_json(http: TestClient) -> None:
    answer = http.post("/v1/completions", content=b'{"prompt": "x"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"temperature": -1}, "temperature", "greater than or equal to 0, not -1"),
        ({"temperature": "1"}, "temperature", 'valid number, not "1"'),
        ({"n": 2.5}, "n", "not 2.5"),
        ({"n": True}, "n", "valid integer, not true"),
        ({"max_tokens": 1e30}, "max_tokens", "less than or equal to 2147483647"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"prompt": []}, "prompt", "valid string or List should have at least 1 item"),
        ({"prompt": [1, "a"]}, "prompt[1]", "valid integer"),
        ({"prompt": {"a": 1}}, "prompt", "prompt: Input should be a valid string"),
        ({"stop": {"str": 1}}, "stop", "stop: Input should be a valid string"),
        ({"prompt": ""}, "prompt", "prompt is empty"),
        ({"prompt": [4096]}, "prompt", "the vocabulary ends at 4095"),
        ({"stop": [""]}, "stop[0]", "at least 1 character"),
        ({"stop_token_ids": [4096]}, "stop_token_ids", "the vocabulary ends at 4095"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "'x' is no token id"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5", "less than or equal to 100"),
        ({"min_tokens": 20, "max_tokens": 10}, "min_tokens", "at most max_tokens"),
        ({"speculative": False, "draft_tokens": 2}, "draft_tokens", "send one of them"),
        ({"request_id": "a b"}, "request_id", "printable ASCII"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "valid boolean"),
    ],
)
def test_a_wrong_field_is_named(complete: Post, fields: dict[str, object], param: str, words: str) -> None:
    answer = complete(**fields)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param
    assert words in error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 3.0, "n": 2.0, "seed": 1e2, "top_k": 5.0, "min_tokens": 0.0, "draft_tokens": 1.0},
        {"prompt": [1.0, 2], "stop_token_ids": [5.0], "logprobs": 1.0},
    ],
)
def test_whole_numbers_may_be_written_with_a_point(
    complete: Post, engine: FakeEngineClient, fields: dict[str, object]
) -> None:
    assert complete(**fields).status_code == 200
    parameters = engine.requests[0].parameters
    assert type(parameters.max_tokens) is int
    assert all(type(token_id) is int for token_id in engine.requests[0].prompt_ids)


def test_a_wrong_value_counts_more_than_what_is_missing_beside_it(http: TestClient) -> None:
    tool = {"type": "web_search"}
    error = http.post("/v1/responses", json={"input": "x", "tools": [tool]}).json()["error"]
    assert error["param"] == "tools[0].type"
    assert 'not "web_search"' in error["message"]


def test_what_does_not_fit_the_context_is_refused_in_the_words_that_clients_know(complete: Post) -> None:
    answer = complete(prompt=[1] * 500, max_tokens=13)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length is 512 tokens" in error["message"]
    assert "500 tokens of prompt and 13 of the output" in error["message"]
    assert complete(prompt=[1] * 500, max_tokens=12).status_code == 200


def test_a_model_that_is_not_served_is_not_found(complete: Post, chat: Post) -> None:
    for post in (complete, chat):
        answer = post(model="gpt-4")
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "model_not_found"
