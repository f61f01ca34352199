"""Answers as server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import monotonic
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from draftproof.errors import DraftproofError
from draftproof.server.client_watch import while_connected
from draftproof.server.errors import ApiError
from draftproof.server.request_ids import PROBLEM_KEY
from draftproof.server.settings import ServerSettings

logger = logging.getLogger("draftproof.server")

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which clients skip."""

FailureEvent = Callable[[ApiError], bytes]


def event(content: Any) -> bytes:
    """One event, JSON of `content`."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """The last event of a stream that has begun and cannot be finished."""
    return event(error.body())


class EventStream(Response):
    """An answer whose events come one by one; made by `open`.

    Args:
        first: the first event, under way.
        rest: what follows.
        failure_event: encodes what ends the stream too early; nothing says that such an answer is whole.
        headers: further ones.
        settings: how long clients and events are waited for.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        first: asyncio.Task[bytes],
        rest: AsyncGenerator[bytes, None],
        failure_event: FailureEvent,
        headers: dict[str, str],
        settings: ServerSettings,
    ) -> None:
        unbuffered = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(None, headers=unbuffered | headers)
        del self.headers["content-length"]
        self._first = first
        self._rest = rest
        self._failure_event = failure_event
        self._settings = settings
        self._sent_at = monotonic()

    @classmethod
    async def open(
        cls,
        receive: Receive,
        events: AsyncGenerator[bytes, None],
        failure_event: FailureEvent,
        headers: dict[str, str],
        settings: ServerSettings,
    ) -> EventStream:
        """Wait for the first event, but not for long.

        Until then an error still is an answer with a status of its own. A request that waits in the queue, or
        whose prompt is long, gets its headers before the first event: clients and proxies give up a
        connection on which nothing comes.

        Raises:
            ApiError, DraftproofError: what ended the request so soon.
        """
        first = asyncio.create_task(_next(events))
        try:
            await while_connected(receive, _wait_for(first, settings.opening_seconds))
            if first.done():
                first.result()
        except BaseException:
            await _end(first)
            raise
        return cls(first, events, failure_event, headers, settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or end when the client goes away."""
        try:
            await while_connected(receive, self._send_all(scope, send))
        except ApiError:
            logger.info("a client left its stream")
        except TimeoutError:
            logger.info("a client took nothing of its stream for %g seconds", self._settings.stalled_seconds)
        finally:
            await _end(self._first)
            await self._rest.aclose()

    async def _send_all(self, scope: Scope, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        keeping = asyncio.create_task(self._keep_alive(send))
        try:
            await self._send_events(scope, send)
        finally:
            await _end(keeping)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, scope: Scope, send: Send) -> None:
        async with aclosing(self._events(scope)) as events:
            async for data in events:
                async with asyncio.timeout(self._settings.stalled_seconds):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                self._sent_at = monotonic()

    async def _events(self, scope: Scope) -> AsyncGenerator[bytes, None]:
        """All events; the status has been sent, so an error is one too."""
        try:
            yield await self._first
            async for data in self._rest:
                yield data
        except Exception as error:
            if not isinstance(error, (ApiError, DraftproofError)):
                logger.exception("a stream failed")
            failure = ApiError.of(error)
            scope[PROBLEM_KEY] = failure.message
            yield self._failure_event(failure)

    async def _keep_alive(self, send: Send) -> None:
        """Again and again: a comment when nothing else was sent for a while."""
        seconds = self._settings.keep_alive_seconds
        self._sent_at = monotonic()
        while True:
            await asyncio.sleep(max(self._sent_at + seconds - monotonic(), 0.0))
            if monotonic() - self._sent_at >= seconds:
                await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
                self._sent_at = monotonic()


async def _next(events: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(events)


async def _wait_for(task: asyncio.Task[bytes], seconds: float) -> None:
    """Until the task is done or the time is over."""
    await asyncio.wait((task,), timeout=seconds)


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancelled, and over: what it holds has been let go; what it failed with was somebody else's to see."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
