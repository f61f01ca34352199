"""Every request has an id, which its answer and its line in the log name: the client's `x-request-id`, or one
that is made up."""

from __future__ import annotations

import logging
import re
import secrets
from time import monotonic

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
SCOPE_KEY = "draftproof.request_id"
PROBLEM_KEY = "draftproof.problem"
"""Where whoever answers with an error leaves its message for the log."""
LONGEST_PROBLEM = 300
LONGEST_PATH = 200
_ACCEPTED = re.compile(r"[\x21-\x7e]{1,128}")
_WATCHED = ("/health", "/ping", "/metrics", "/server_info")

logger = logging.getLogger("draftproof.server")


def fresh_id() -> str:
    """An id that no other request has."""
    return secrets.token_hex(16)


def is_usable(request_id: str) -> bool:
    """Whether a client's id can stand in headers and logs: printable ASCII without spaces, not long."""
    return _ACCEPTED.fullmatch(request_id) is not None


def request_id_of(scope: Scope) -> str:
    """The request's id."""
    found: str = scope[SCOPE_KEY]
    return found


class RequestIds:
    """Gives requests their ids, and logs each when its answer has been sent.

    Args:
        app: what answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and name the id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope[SCOPE_KEY] = _given(scope) or fresh_id()
        header = (HEADER.encode(), request_id.encode())
        began = monotonic()
        status: int | None = None

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        finally:
            _log(scope, status, monotonic() - began)


def _given(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == HEADER.encode():
            given: str = value.decode("latin-1")
            return given if is_usable(given) else None
    return None


def _log(scope: Scope, status: int | None, seconds: float) -> None:
    """One line; what asks again and again how the server does is not worth one."""
    path = scope["path"]
    level = logging.DEBUG if path in _WATCHED else logging.INFO
    if logger.isEnabledFor(level):
        shown = ascii(path[:LONGEST_PATH])[1:-1]
        fields = {"request_id": request_id_of(scope), "status": status, "seconds": round(seconds, 3)}
        problem = scope.get(PROBLEM_KEY)
        if problem is not None:
            fields["error"] = ascii(problem[:LONGEST_PROBLEM])
        logger.log(level, "%s %s", scope["method"], shown, extra=fields)
