"""One log line for each answered request, with its id, status and time."""

from __future__ import annotations

import logging
from time import monotonic

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draftproof.server.request_ids import SCOPE_KEY

QUIET_PATHS = frozenset({"/health", "/metrics", "/ping", "/load"})
"""Asked for again and again by machines; a line each would bury the others."""

logger = logging.getLogger("draftproof.server")


class AccessLog:
    """Logs requests when their answer has ended, however it ended.

    Args:
        app: what answers, and gives requests their ids.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and log it."""
        if scope["type"] != "http" or scope["path"] in QUIET_PATHS:
            await self._app(scope, receive, send)
            return
        began, status = monotonic(), 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            logger.info(
                "%s %s %s",
                scope["method"],
                scope["path"],
                status or "no answer",
                extra={
                    "request_id": scope.get(SCOPE_KEY, ""),
                    "seconds": round(monotonic() - began, 3),
                },
            )
