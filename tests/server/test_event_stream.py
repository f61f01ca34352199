"""Streams that have nothing to say yet: their headers go out, and comments keep the connection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx2
import pytest

from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.serving.client import GenerationFailed, QueueFull
from draftproof.serving.messages import FailureKind
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.tokenizer import Tokenizer
from tests.support.events import events_of
from tests.support.fake_engine import Answer, FakeEngineClient, Piece
from tests.support.http_server import serving
from tests.support.waiting import wait_for

OPENING, KEEPING = 0.1, 0.05
PATHS = {
    "/v1/completions": {"prompt": "Hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/responses": {"input": "Hi"},
}
COMMENT = ": keep-alive\n\n"


@pytest.fixture
def url(
    engine: FakeEngineClient, tokenizer: Tokenizer, template: ChatTemplate, settings: ServerSettings
) -> Iterator[str]:
    """Of a server that waits 0.1 seconds for a first event, and sends a comment after 0.05 of silence."""
    patience = replace(settings, opening_seconds=OPENING, keep_alive_seconds=KEEPING)
    with serving(create_app(engine, tokenizer, template, patience)) as address:
        yield address


def without_comments(text: str) -> str:
    return text.replace(COMMENT, "")


@pytest.mark.parametrize("path", PATHS)
def test_headers_and_comments_come_before_the_first_token(
    engine: FakeEngineClient, url: str, path: str
) -> None:
    engine.answer = lambda request: Answer((), never_ends=True)
    with httpx2.stream("POST", url + path, json={**PATHS[path], "stream": True}, timeout=10) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        parts = answer.iter_text()
        assert [next(parts), next(parts)] == [COMMENT, COMMENT]
    wait_for(lambda: len(engine.aborted) == 1)


@pytest.mark.parametrize("path", PATHS)
def test_comments_change_nothing_of_the_events(engine: FakeEngineClient, url: str, path: str) -> None:
    pieces = (Piece("slow"), Piece(" words"))
    texts = []
    for seconds in (0.0, 2 * OPENING):
        engine.answer = lambda request, seconds=seconds: Answer(pieces, step_seconds=seconds)
        texts.append(httpx2.post(url + path, json={**PATHS[path], "stream": True}, timeout=10).text)
    quick, slow = texts
    assert COMMENT in slow
    assert COMMENT not in quick
    assert without_comments(slow).count("data: ") == quick.count("data: ")
    assert "slow" in slow
    assert " words" in slow


@pytest.mark.parametrize("path", PATHS)
def test_a_request_that_is_refused_soon_has_a_status(engine: FakeEngineClient, url: str, path: str) -> None:
    engine.answer = lambda request: Answer((), error=QueueFull("full", 3))
    answer = httpx2.post(url + path, json={**PATHS[path], "stream": True}, timeout=10)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")


@pytest.mark.parametrize("path", PATHS)
def test_a_failure_after_the_headers_is_the_last_event(engine: FakeEngineClient, url: str, path: str) -> None:
    engine.answer = lambda request: Answer(
        (Piece("", ()), Piece("", ())),
        error=GenerationFailed(FailureKind.FAULT, "not a number"),
        step_seconds=OPENING,
    )
    answer = httpx2.post(url + path, json={**PATHS[path], "stream": True}, timeout=10)
    assert answer.status_code == 200
    assert "not a number" in without_comments(answer.text).rstrip().rpartition("\n\n")[2]
    assert "[DONE]" not in answer.text


def test_the_last_event_of_a_quiet_stream_is_the_end(engine: FakeEngineClient, url: str) -> None:
    engine.answer = lambda request: Answer((Piece("a"), Piece("b")), step_seconds=2 * OPENING)
    answer = httpx2.post(url + "/v1/completions", json={"prompt": "Hi", "stream": True}, timeout=10)
    assert answer.text.endswith("data: [DONE]\n\n")
    events = events_of(without_comments(answer.text))
    assert "".join(event["choices"][0]["text"] for event in events if isinstance(event, dict)) == "ab"
