"""Bodies that are too large or too slow."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from starlette.testclient import TestClient
from starlette.types import Message

from draftproof.server.app import create_app
from draftproof.server.body_limit import BodyLimit
from draftproof.server.settings import ServerSettings
from draftproof.text.tokenizer import Tokenizer
from tests.support.fake_engine import FakeEngineClient
from tests.support.http_server import serving

LIMIT = 1_000


@pytest.fixture
def limited(engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings) -> TestClient:
    """A client of a server that takes bodies of 1,000 bytes."""
    return TestClient(create_app(engine, tokenizer, None, replace(settings, max_body_bytes=LIMIT)))


def body_of(size: int) -> bytes:
    """A valid body of so many bytes."""
    body = json.dumps({"prompt": ""}).encode()
    return body.replace(b'""', b'"' + b"x" * (size - len(body)) + b'"')


def pieces_of(body: bytes) -> Iterator[bytes]:
    """The body in pieces, so that its length is not declared."""
    for begin in range(0, len(body), 100):
        yield body[begin : begin + 100]


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_body_of_the_limit_passes_and_a_larger_one_does_not(limited: TestClient, is_declared: bool) -> None:
    headers = {"content-type": "application/json"}
    for size, status in ((LIMIT, 200), (LIMIT + 1, 413)):
        body = body_of(size)
        answer = limited.post("/tokenize", content=body if is_declared else pieces_of(body), headers=headers)
        assert answer.status_code == status
    assert "more than 1000 bytes" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [([], 408), ([(b"content-length", b"1000")], 408), ([(b"content-length", b"1001")], 413)],
)
def test_a_body_that_does_not_come_is_given_up_and_one_that_is_too_large_not_waited_for(
    headers: list[tuple[bytes, bytes]], status: int
) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(60)
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    async def app(*_: object) -> None:
        raise AssertionError

    scope = {"type": "http", "headers": headers, "method": "POST", "path": "/"}
    asyncio.run(BodyLimit(app, LIMIT, seconds=0.01)(scope, receive, send))
    assert sent[0]["status"] == status


def test_a_client_that_leaves_within_its_body_harms_nobody(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    with serving(create_app(engine, tokenizer, None, settings)) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                b"content-length: 100\r\n\r\n{"
            )
        with socket.create_connection(address) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    assert not engine.requests
