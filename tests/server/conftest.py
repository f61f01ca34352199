"""An application over a fake engine, with the embedded checkpoint's tokenizer and template."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import draftproof
from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.tokenizer import Tokenizer
from tests.support.fake_engine import FakeEngineClient

TINY = Path(draftproof.__file__).parent / "data" / "tiny"


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Of the embedded checkpoint."""
    return Tokenizer.load(TINY)


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    """Of the embedded checkpoint."""
    return ChatTemplate.load(TINY)


@pytest.fixture
def settings() -> ServerSettings:
    """Two names, no key."""
    return ServerSettings(model_names=("tiny", "other/name"), model_root="tiny", created=1_700_000_000)


@pytest.fixture
def engine() -> FakeEngineClient:
    """Says "Hello world" to every request."""
    return FakeEngineClient()


@pytest.fixture
def http(
    engine: FakeEngineClient, tokenizer: Tokenizer, template: ChatTemplate, settings: ServerSettings
) -> Iterator[TestClient]:
    """A client of the application; exceptions become answers, as on a real server."""
    app = create_app(engine, tokenizer, template, settings)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client
