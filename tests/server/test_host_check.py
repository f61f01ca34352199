"""A server on a loopback address answers to this machine's names alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from draftproof.server.app import create_app
from draftproof.server.host_check import is_loopback
from draftproof.server.settings import ServerSettings
from draftproof.text.tokenizer import Tokenizer
from tests.support.fake_engine import FakeEngineClient

OURS = [
    "127.0.0.1",
    "127.0.0.1:8000",
    "localhost:8000",
    "LocalHost",
    "a.localhost",
    "[::1]:8000",
    "10.0.0.7:80",
]
OTHERS = ["example.org", "example.org:8000", "localhost.example.org", "127.0.0.1.example.org", "[x]", "x"]


@pytest.fixture
def local(engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings) -> TestClient:
    """A client of a server for its own machine."""
    return TestClient(create_app(engine, tokenizer, None, replace(settings, is_local=True)))


@pytest.mark.parametrize("host", OURS)
def test_names_of_this_machine_are_answered(local: TestClient, host: str) -> None:
    assert local.get("/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", OTHERS)
def test_a_page_whose_name_was_pointed_here_gets_nothing(
    local: TestClient, engine: FakeEngineClient, host: str
) -> None:
    answer = local.post("/v1/completions", json={"prompt": "Hi"}, headers={"host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "host_not_allowed"
    assert not engine.requests


def test_with_keys_every_name_is_answered(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    keyed = replace(settings, is_local=True, api_keys=("key",))
    http = TestClient(create_app(engine, tokenizer, None, keyed))
    headers = {"host": "example.org", "authorization": "Bearer key"}
    assert http.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.7", False),
        ("me", False),
    ],
)
def test_which_addresses_are_this_machine_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
