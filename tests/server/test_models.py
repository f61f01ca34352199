"""Health, version and the list of models."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from draftproof.serving.client import Health, HealthState
from tests.support.fake_engine import FakeEngineClient


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (HealthState.STARTING, 503),
        (HealthState.READY, 200),
        (HealthState.DEGRADED, 200),
        (HealthState.DRAINING, 503),
        (HealthState.FAILED, 503),
    ],
)
@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_health_answers_200_while_requests_are_answered(
    http: TestClient, engine: FakeEngineClient, state: HealthState, status: int, path: str
) -> None:
    engine.health = Health(state, ("a reason",))
    answer = http.get(path)
    assert answer.status_code == status
    assert answer.json() == {"status": state.value, "reasons": ["a reason"]}
    assert http.head(path).status_code == status


def test_models_are_listed_with_the_longest_context(http: TestClient) -> None:
    models = http.get("/v1/models").json()["data"]
    assert [model["id"] for model in models] == ["tiny", "other/name"]
    assert models[0]["max_model_len"] == 512
    assert http.get("/v1/models/other/name").json() == models[1]


def test_a_model_that_is_not_served_is_named(http: TestClient) -> None:
    answer = http.get("/v1/models/gpt-4")
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert error["code"] == "model_not_found"
    assert "'gpt-4'" in error["message"]
    assert "tiny" in error["message"]


@pytest.mark.parametrize(
    "path", ["/health", "/ping", "/version", "/v1/models", "/v1/models/tiny", "/load", "/model_info"]
)
def test_head_is_get_without_the_body(http: TestClient, path: str) -> None:
    whole, head = http.get(path), http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert head.headers["content-type"] == whole.headers["content-type"]


def test_head_of_what_only_takes_post_is_refused(http: TestClient) -> None:
    assert http.head("/v1/completions").status_code == 405
