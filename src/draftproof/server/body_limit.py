"""Bodies are read whole before anything looks at them, up to a size and a time."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draftproof.server.errors import ApiError


class BodyLimit:
    """Refuses large and slow bodies.

    Args:
        app: what answers.
        most_bytes: of a body.
        seconds: until a body must be there.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, seconds: float) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body and hand it on in one piece."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(Headers(scope=scope), receive)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        if body is None:
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_whole() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, receive_whole, send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes | None:
        """The body; None when the client left before its end."""
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self._most_bytes:
            raise self._too_large()
        pieces: list[bytes] = []
        size, has_more = 0, True
        try:
            async with asyncio.timeout(self._seconds):
                while has_more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    has_more = message.get("more_body", False)
                    if size > self._most_bytes:
                        raise self._too_large()
        except TimeoutError as error:
            raise ApiError(
                408,
                f"the body did not arrive within {self._seconds:g} seconds",
                headers={"connection": "close"},
            ) from error
        return b"".join(pieces)

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"the body has more than {self._most_bytes} bytes, which is the most that this server takes",
            code="body_too_large",
            headers={"connection": "close"},
        )
