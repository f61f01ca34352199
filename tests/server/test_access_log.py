"""A line for each request: what was asked, what came of it, under which id."""

import asyncio
import logging

import pytest
from starlette.types import Message, Receive, Scope, Send

from draftproof.server.access_log import AccessLog
from draftproof.server.request_ids import RequestIds


def ask(path: str, answer: object) -> None:
    """Send a request for a path through the log to an application that answers like this."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if isinstance(answer, Exception):
            raise answer
        await send({"type": "http.response.start", "status": answer, "headers": []})

    async def nothing(message: Message | None = None) -> Message:
        return {}

    scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"x-request-id", b"r-1")]}
    asyncio.run(AccessLog(RequestIds(application))(scope, nothing, nothing))


def test_a_request_is_logged_with_its_status_id_and_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "draftproof.server"):
        ask("/v1/completions", 200)
    (record,) = caplog.records
    assert record.getMessage() == "POST /v1/completions 200"
    assert (record.request_id, record.seconds >= 0) == ("r-1", True)  # type: ignore[attr-defined]


def test_a_request_without_an_answer_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "draftproof.server"), pytest.raises(RuntimeError):
        ask("/v1/completions", RuntimeError("gone"))
    assert caplog.records[0].getMessage() == "POST /v1/completions no answer"


def test_what_machines_ask_for_all_the_time_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "draftproof.server"):
        ask("/health", 200)
    assert caplog.records == []
