"""Answers as server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from draftproof.server.client_watch import while_connected
from draftproof.server.errors import ApiError

logger = logging.getLogger("draftproof.server")

DONE = b"data: [DONE]\n\n"


def event(content: Any) -> bytes:
    """One event, JSON of `content`."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


class EventStream(Response):
    """An answer whose events come one by one; made by `open`.

    Args:
        first: events that are there already.
        rest: what follows.
        headers: further ones.
        stalled_seconds: a client that takes nothing for so long, while its connection is full, is given up.
    """

    media_type = "text/event-stream"

    def __init__(
        self, first: bytes, rest: AsyncGenerator[bytes, None], headers: dict[str, str], stalled_seconds: float
    ) -> None:
        unbuffered = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(None, headers=unbuffered | headers)
        del self.headers["content-length"]
        self._first = first
        self._rest = rest
        self._stalled_seconds = stalled_seconds

    @classmethod
    async def open(
        cls,
        receive: Receive,
        events: AsyncGenerator[bytes, None],
        headers: dict[str, str],
        stalled_seconds: float,
    ) -> EventStream:
        """Wait for the first event: until then, an error still is an answer with a status of its own.

        Raises:
            ApiError: whatever ends the request before its first event.
        """
        first = await while_connected(receive, _next(events))
        return cls(first, events, headers, stalled_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or end when the client goes away."""
        try:
            await while_connected(receive, self._send_all(send))
        except ApiError:
            logger.info("a client left its stream")
        except TimeoutError:
            logger.info("a client took nothing of its stream for %g seconds", self._stalled_seconds)
        finally:
            await self._rest.aclose()

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for data in self._rest:
            async with asyncio.timeout(self._stalled_seconds):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _next(events: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(events)
