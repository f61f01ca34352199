"""Who may call: with keys configured, everybody who sends one; a few paths are open to all."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from draftproof.server.errors import ApiError

OPEN_PATHS = frozenset({"/", "/health", "/ping", "/metrics", "/version", "/favicon.ico"})
"""What load balancers and Prometheus read, and the page, which holds nothing by itself."""

OPEN_FOLDER = "/page/"
SCHEME = "bearer"


class Authentication:
    """Asks for a key.

    Args:
        app: what answers.
        keys: the valid ones; at least one.
    """

    def __init__(self, app: ASGIApp, keys: tuple[str, ...]) -> None:
        self._app = app
        self._keys = tuple(key.encode() for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer those who may call."""
        if scope["type"] != "http" or _is_open(scope["path"]) or self._has_key(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        has_one = "authorization" in Headers(scope=scope)
        problem = "the API key is not valid" if has_one else "an API key is needed"
        refusal = ApiError(
            401,
            f"{problem}: send the header Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
        await refusal.response()(scope, receive, send)

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        sent = given.strip().encode("latin-1", "replace")
        # All keys are compared, and each in constant time: how long it takes says nothing about them.
        matches = [hmac.compare_digest(sent, key) for key in self._keys]
        return scheme.lower() == SCHEME and any(matches)


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)
