"""An application over a fake engine, with the embedded checkpoint's tokenizer and template."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import Response
from starlette.testclient import TestClient

import draftproof
from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.grammar import GrammarCompiler
from draftproof.text.tokenizer import Tokenizer
from tests.support.fake_engine import READY, FakeEngineClient

TINY = Path(draftproof.__file__).parent / "data" / "tiny"

Post = Callable[..., Response]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Of the embedded checkpoint."""
    return Tokenizer.load(TINY)


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    """Of the embedded checkpoint."""
    return ChatTemplate.load(TINY)


@pytest.fixture(scope="session")
def rules_check(tokenizer: Tokenizer) -> GrammarCompiler:
    """Of the embedded checkpoint's tokenizer."""
    return GrammarCompiler(tokenizer, READY.end_token_ids, READY.vocabulary_size)


@pytest.fixture
def settings() -> ServerSettings:
    """Two names, no key."""
    return ServerSettings(model_names=("tiny", "other/name"), model_root="tiny", created=1_700_000_000)


@pytest.fixture
def engine() -> FakeEngineClient:
    """Says "Hello world" to every request."""
    return FakeEngineClient()


@pytest.fixture
def app(
    engine: FakeEngineClient,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    settings: ServerSettings,
    rules_check: GrammarCompiler,
) -> FastAPI:
    """The application."""
    return create_app(engine, tokenizer, template, settings, rules_check=rules_check)


@pytest.fixture
def http(app: FastAPI) -> Iterator[TestClient]:
    """A client of the application; exceptions become answers, as on a real server."""
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def complete(http: TestClient) -> Post:
    """Posts a completion with the fields that are given; the prompt is "Hi" unless it is one of them."""

    def post(**fields: Any) -> Response:
        return http.post("/v1/completions", json={"prompt": "Hi", **fields})

    return post


@pytest.fixture
def chat(http: TestClient) -> Post:
    """Posts a chat request with the fields that are given; one user says "Hi" unless messages are given."""

    def post(**fields: Any) -> Response:
        messages = [{"role": "user", "content": "Hi"}]
        return http.post("/v1/chat/completions", json={"messages": messages, **fields})

    return post
