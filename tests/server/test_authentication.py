"""Who may call when keys are configured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.text.tokenizer import Tokenizer
from tests.support.fake_engine import FakeEngineClient


@pytest.fixture
def guarded(engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings) -> TestClient:
    """A client of a server with two keys."""
    return TestClient(create_app(engine, tokenizer, None, replace(settings, api_keys=("one", "zwei"))))


@pytest.mark.parametrize("sent", ["Bearer one", "bearer zwei", "Bearer  one"])
def test_each_key_opens(guarded: TestClient, sent: str) -> None:
    assert guarded.get("/v1/models", headers={"authorization": sent}).status_code == 200


@pytest.mark.parametrize(
    "sent", [None, "", "Bearer", "Bearer ", "Bearer on", "one", "Basic one", "Bearer \xff"]
)
def test_everything_else_is_refused(guarded: TestClient, sent: str | None) -> None:
    headers = {} if sent is None else {"authorization": sent.encode("latin-1")}
    answer = guarded.get("/v1/models", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
    assert "one" not in error["message"]
    assert "x-request-id" in answer.headers


def test_a_wrong_key_and_none_are_told_apart(guarded: TestClient) -> None:
    none = guarded.get("/v1/models").json()["error"]["message"]
    wrong = guarded.get("/v1/models", headers={"authorization": "Bearer no"}).json()["error"]["message"]
    assert none.startswith("an API key is needed")
    assert wrong.startswith("the API key is not valid")


def test_a_refused_request_never_reaches_the_engine(guarded: TestClient, engine: FakeEngineClient) -> None:
    for path in ("/v1/completions", "/v1/chat/completions", "/reset_prefix_cache", "/tokenize"):
        assert guarded.post(path, json={"prompt": "x"}).status_code == 401
    assert not engine.requests
    assert engine.prefix_resets == 0


@pytest.mark.parametrize("path", ["/health", "/ping", "/version"])
def test_what_watches_the_server_needs_no_key(guarded: TestClient, path: str) -> None:
    assert guarded.get(path).status_code == 200


def test_without_keys_everybody_may_call(http: TestClient) -> None:
    assert http.get("/v1/models").status_code == 200


def test_pages_of_other_origins_may_not_call(http: TestClient) -> None:
    answer = http.get("/v1/models", headers={"origin": "https://example.org"})
    assert "access-control-allow-origin" not in answer.headers


def test_pages_of_an_allowed_origin_may_call(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    origin = "https://example.org"
    allowing = replace(settings, allowed_origins=(origin,), api_keys=("one",))
    http = TestClient(create_app(engine, tokenizer, None, allowing))
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    assert http.options("/v1/completions", headers=asked).headers["access-control-allow-origin"] == origin
    other = http.options("/v1/completions", headers=asked | {"origin": "https://other.org"})
    assert "access-control-allow-origin" not in other.headers
