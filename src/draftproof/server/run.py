"""The server's life: answer, and on a signal finish what runs, then end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI

from draftproof.server.listening import open_address
from draftproof.serving.client import EngineClient
from draftproof.serving.engine_process import EngineProcess
from draftproof.serving.process_client import ProcessEngineClient, ServingLimits

SLOW_CLIENT_SECONDS = 5
"""After the last answer is made, clients have so long to read it."""
KEEP_ALIVE_SECONDS = 75
"""Longer than the minute after which proxies drop an idle connection, so that they do it, not we."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_LOG = logging.getLogger("draftproof.server")


@dataclass(frozen=True)
class Lifetime:
    """How patient the server is.

    Attributes:
        limits: with the engine and with the queue.
        drain_seconds: with requests that run when it is told to stop.
    """

    limits: ServingLimits = field(default_factory=ServingLimits)
    drain_seconds: float = 30.0


def run_server(
    process: EngineProcess,
    address: socket.socket,
    make_app: Callable[[EngineClient], FastAPI],
    lifetime: Lifetime,
    announce: Callable[[], None],
) -> int:
    """Answer until SIGINT or SIGTERM, finish what runs, and end the engine process.

    A second signal ends everything at once.

    Args:
        process: started; it is ended in every case.
        address: from `take_address`.
        make_app: the application around the engine's client.
        lifetime: how long to wait for what.
        announce: called when clients can connect.

    Returns:
        The exit code: 0 after an orderly end.

    Raises:
        EnvironmentProblem: the address was taken by somebody else.
    """
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(process, address, make_app, lifetime, announce))
    finally:
        process.kill()


async def _serve(
    process: EngineProcess,
    address: socket.socket,
    make_app: Callable[[EngineClient], FastAPI],
    lifetime: Lifetime,
    announce: Callable[[], None],
) -> int:
    client = ProcessEngineClient(process, lifetime.limits)
    server = _Server(_uvicorn_config(make_app(client)))
    with _told_to_stop(process) as told:
        open_address(address)
        serving = asyncio.create_task(server.serve(sockets=[address]))
        announce()
        stop = asyncio.create_task(told.wait())
        await asyncio.wait((serving, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not serving.done():
            await client.drain(lifetime.drain_seconds)
            server.should_exit = True
        await serving
        await client.close()
    _LOG.info("stopped")
    return 0


class _Server(uvicorn.Server):
    """Without uvicorn's own reaction to signals, which would end answers in the middle."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def _told_to_stop(process: EngineProcess) -> Iterator[asyncio.Event]:
    """An event for the first signal; the second one ends the process."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def take(number: signal.Signals) -> None:
        if told.is_set():
            process.kill()
            os._exit(128 + number)
        _LOG.info("%s: finishing what runs; once more ends at once", number.name)
        told.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, take, number)
    try:
        yield told
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _uvicorn_config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="auto",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SLOW_CLIENT_SECONDS,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
