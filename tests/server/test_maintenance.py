"""Routes for operators and load tools."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from draftproof.engine.status import EngineStatus
from draftproof.serving.client import GenerationFailed
from draftproof.serving.messages import FailureKind
from tests.support.fake_engine import Answer, FakeEngineClient


@pytest.mark.parametrize("path", ["/reset_prefix_cache", "/flush_cache"])
def test_kept_prompts_are_forgotten(http: TestClient, engine: FakeEngineClient, path: str) -> None:
    assert http.post(path).status_code == 200
    assert engine.prefix_resets == 1


def test_load_counts_running_and_waiting_requests(http: TestClient, engine: FakeEngineClient) -> None:
    engine.status = EngineStatus(running=3, waiting=2)
    assert http.get("/load").json() == {"server_load": 5}


def test_the_checkpoint_is_named(http: TestClient) -> None:
    assert http.get("/model_info").json()["model_path"] == "tiny"


def test_a_real_generation_is_the_deepest_health_check(http: TestClient, engine: FakeEngineClient) -> None:
    assert http.get("/health_generate").status_code == 200
    assert engine.requests[0].parameters.max_tokens == 1
    engine.answer = lambda request: Answer((), error=GenerationFailed(FailureKind.STOPPED, "gone"))
    assert http.get("/health_generate").status_code == 503
