"""Clients that go away or take nothing: their requests are aborted, on a real connection."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.tokenizer import Tokenizer
from tests.support.fake_engine import Answer, FakeEngineClient, Piece
from tests.support.http_server import serving
from tests.support.waiting import wait_for


@pytest.fixture
def address(
    engine: FakeEngineClient, tokenizer: Tokenizer, template: ChatTemplate, settings: ServerSettings
) -> Iterator[tuple[str, int]]:
    """A server's, which gives up clients that take nothing for 0.2 seconds."""
    app = create_app(engine, tokenizer, template, replace(settings, stalled_seconds=0.2))
    with serving(app) as url:
        yield "127.0.0.1", int(url.rpartition(":")[2])


def posted(address: tuple[str, int], path: str, body: dict[str, object]) -> socket.socket:
    """A connection on which a request was sent."""
    content = json.dumps(body).encode()
    connection = socket.create_connection(address)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    connection.sendall(head.encode() + content)
    return connection


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"stream": True, "n": 3}, {"n": 3}])
@pytest.mark.parametrize("pieces", [(), (Piece("begun"),)])
def test_a_client_that_goes_away_has_its_requests_aborted(
    engine: FakeEngineClient,
    address: tuple[str, int],
    fields: dict[str, object],
    pieces: tuple[Piece, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine.answer = lambda request: Answer(pieces, never_ends=True)
    count = int(str(fields.get("n", 1)))
    with posted(address, "/v1/completions", {"prompt": "Hi", **fields}):
        wait_for(lambda: len(engine.requests) == count)
        assert not engine.aborted
    wait_for(lambda: len(engine.aborted) == count)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_client_that_takes_nothing_is_given_up(engine: FakeEngineClient, address: tuple[str, int]) -> None:
    engine.answer = lambda request: Answer((Piece("x" * 100_000),) * 400, never_ends=True)
    with posted(address, "/v1/completions", {"prompt": "Hi", "stream": True}):
        wait_for(lambda: engine.aborted)


def test_hundreds_of_clients_that_go_away_leave_nothing(
    engine: FakeEngineClient, address: tuple[str, int]
) -> None:
    engine.answer = lambda request: Answer((Piece("x"),), never_ends=True)
    for _ in range(100):
        posted(address, "/v1/completions", {"prompt": "Hi", "stream": True}).close()
    wait_for(lambda: len(engine.aborted) == len(engine.requests))
    with posted(address, "/tokenize", {"prompt": "Hi"}) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
