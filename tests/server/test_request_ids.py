"""Every answer names its request."""

from __future__ import annotations

import logging

import pytest
from starlette.testclient import TestClient

from draftproof.serving.client import GenerationFailed
from draftproof.serving.messages import FailureKind
from tests.server.conftest import Post
from tests.support.fake_engine import Answer, FakeEngineClient, Piece


def test_an_id_is_made_up_for_each_request(http: TestClient) -> None:
    first, second = (http.get("/health").headers["x-request-id"] for _ in range(2))
    assert first != second


def test_the_clients_id_is_kept(http: TestClient) -> None:
    headers = {"x-request-id": "my-id.1"}
    answer = http.post("/v1/completions", json={"prompt": "Hi"}, headers=headers)
    assert answer.headers["x-request-id"] == "my-id.1"
    assert answer.json()["id"] == "cmpl-my-id.1"


@pytest.mark.parametrize("sent", ["a b", "", "x" * 129, "\xfc"])
def test_an_id_that_cannot_stand_in_a_log_is_replaced(http: TestClient, sent: str) -> None:
    headers = {"x-request-id": sent.encode("latin-1")}
    found = http.get("/health", headers=headers).headers["x-request-id"]
    assert found != sent
    assert len(found) == 32


def test_two_requests_of_one_id_do_not_meet_in_the_engine(complete: Post, engine: FakeEngineClient) -> None:
    for _ in range(2):
        assert complete(request_id="same").json()["id"] == "cmpl-same"
    first, second = (request.request_id for request in engine.requests)
    assert first != second


def test_errors_name_their_request_too(http: TestClient) -> None:
    assert "x-request-id" in http.get("/nothing").headers


def test_each_request_has_a_line_in_the_log(http: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "draftproof.server"):
        http.get("/v1/models", headers={"x-request-id": "mine"})
        http.get("/nothing%0Ahere")
        http.get("/health")
    listed, refused = caplog.records
    assert listed.getMessage() == "GET /v1/models"
    assert vars(listed)["request_id"] == "mine"
    assert vars(listed)["status"] == 200
    assert vars(listed)["seconds"] >= 0
    assert refused.getMessage() == r"GET /nothing\nhere"
    assert vars(refused)["status"] == 404


def test_the_log_says_why_a_request_was_refused(complete: Post, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "draftproof.server"):
        complete(n=0)
        complete(model="line\nbreak")
        complete()
    wrong, unknown, fine = (vars(record) for record in caplog.records)
    assert "n: Input should be greater than or equal to 1, not 0" in wrong["error"]
    assert "\n" not in unknown["error"]
    assert "error" not in fine


def test_the_log_says_how_a_stream_failed(
    complete: Post, engine: FakeEngineClient, caplog: pytest.LogCaptureFixture
) -> None:
    engine.answer = lambda request: Answer(
        (Piece("begun"),), error=GenerationFailed(FailureKind.DEADLINE, "too late")
    )
    with caplog.at_level(logging.INFO, "draftproof.server"):
        complete(stream=True)
    (line,) = (vars(record) for record in caplog.records)
    assert (line["status"], line["error"]) == (200, "'too late'")
