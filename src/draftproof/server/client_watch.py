"""Work for a client ends when the client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from draftproof.server.errors import ApiError

T = TypeVar("T")
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for it; nobody is there to read the answer."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client disconnects.

    Args:
        receive: of the request, whose body has been read.
        work: to do.

    Raises:
        ApiError: 499, the client went away.
    """
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ApiError(CLIENT_CLOSED_REQUEST, "the client closed the connection")
        return doing.result()
    finally:
        doing.cancel()
        leaving.cancel()
        # Until the work has cleaned up: its request is aborted then.
        await asyncio.gather(doing, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
