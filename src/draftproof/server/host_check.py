"""A server for this machine alone answers to this machine's names alone.

A web page may call any server of its own host name, and its owner may let that name point to 127.0.0.1 (DNS
rebinding); the browser then still sends the page's name as `Host`.
"""

from __future__ import annotations

from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from draftproof.server.errors import ApiError

LOCALHOST = "localhost"
NOBODYS = (".localhost", ".local", ".internal")
"""No such name can be registered, so no page of a stranger has one; containers call their host by one."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
    if host.lower() == LOCALHOST:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class LocalHosts:
    """Refuses requests to other hosts' names.

    Args:
        app: what answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer requests to this machine."""
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
        if _is_ours(host):
            await self._app(scope, receive, send)
            return
        refusal = ApiError(
            403,
            "this server is for its own machine and does not answer to that host name. Use 127.0.0.1, or "
            "start it with --api-key",
            code="host_not_allowed",
        )
        await refusal.response()(scope, receive, send)


def _is_ours(host: str) -> bool:
    """An address, which no page of another site is at; the machine's own name; or none, as browsers never
    send."""
    name = host.lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name in ("", LOCALHOST) or name.endswith(NOBODYS):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
