"""The address that the server answers at: taken before the engine is loaded, opened when it is ready."""

from __future__ import annotations

import errno
import socket

from draftproof.errors import EnvironmentProblem, UsageError

BACKLOG = 2048
_REASONS = {
    errno.EADDRINUSE: (
        "is in use",
        "Choose another one with --port, or stop the program that listens there.",
    ),
    errno.EACCES: ("needs more rights than this user has", "Choose a port above 1023 with --port."),
    errno.EADDRNOTAVAIL: ("is no address of this machine", "Choose another --host; 0.0.0.0 is all of them."),
}


def take_address(host: str, port: int) -> socket.socket:
    """A socket at the address, not yet listening: clients are refused until `open_address`.

    Args:
        host: name or number, of IPv4 or IPv6.
        port: 0 for any that is free.

    Raises:
        UsageError: the host cannot be resolved.
        EnvironmentProblem: the address cannot be had.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise UsageError(
            f"--host {host}: no such address", "Give a name or number of this machine."
        ) from error
    family, kind, protocol, _, address = found[0]
    taken = socket.socket(family, kind, protocol)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except OSError as error:
        taken.close()
        raise _problem(host, port, error) from error
    return taken


def open_address(taken: socket.socket) -> None:
    """Let clients in.

    Raises:
        EnvironmentProblem: somebody else opened the same address meanwhile.
    """
    try:
        taken.listen(BACKLOG)
    except OSError as error:
        host, port = taken.getsockname()[:2]
        raise _problem(host, port, error) from error


def url_of(taken: socket.socket) -> str:
    """Where a client on this machine finds the server."""
    host, port = taken.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _problem(host: str, port: int, error: OSError) -> EnvironmentProblem:
    default = (f"cannot be used: {error.strerror}", "Choose another one with --host and --port.")
    reason, remedy = _REASONS.get(error.errno or 0, default)
    return EnvironmentProblem(f"the address {host}:{port} {reason}", remedy)
