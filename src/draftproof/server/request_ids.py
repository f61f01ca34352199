"""Every request has an id: the client's `x-request-id`, or one that is made up; every answer names it."""

from __future__ import annotations

import re
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
SCOPE_KEY = "draftproof.request_id"
_ACCEPTED = re.compile(r"[\x21-\x7e]{1,128}")


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
    """Gives requests their ids.

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
        request_id = _given(scope) or fresh_id()
        scope[SCOPE_KEY] = request_id
        header = (HEADER.encode(), request_id.encode())

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
            await send(message)

        await self._app(scope, receive, send_named)


def _given(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == HEADER.encode():
            given: str = value.decode("latin-1")
            return given if is_usable(given) else None
    return None
