"""Routes that read JSON strictly, see `strict_json`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from draftproof.server.errors import ApiError
from draftproof.server.strict_json import JsonFault, parse_json

JSON_TYPE = "application/json"


class JsonRequest(Request):
    """A request whose body is read by `parse_json`."""

    async def json(self) -> Any:
        """The body's value."""
        try:
            return parse_json(await self.body())
        except JsonFault as error:
            raise ApiError(400, f"the body is no JSON: {error}", code="invalid_json") from error


class JsonRoute(APIRoute):
    """A route that reads its body through `JsonRequest`.

    A page of another origin may send text/plain without asking; it must not reach the model, so the body has
    to call itself JSON.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, behind the stricter reading."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if self.body_field is not None:
                _require_json(request)
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json


def _require_json(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise ApiError(415, f"content-type is {kind!r}; send {JSON_TYPE}", code="unsupported_media_type")
