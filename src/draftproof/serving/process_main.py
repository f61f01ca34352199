"""What runs in the engine process: commands from a pipe, steps, messages into the pipe.

Signals belong to the process that started this one. When that one is gone, however it went, the pipe ends,
and this process with it, even in the middle of a step.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from threading import Thread

from draftproof.errors import known_problem
from draftproof.serving.factory import EngineFactory
from draftproof.serving.logs import LogSettings, configure_logs
from draftproof.serving.messages import (
    EngineCommand,
    EngineCrashed,
    EngineMessage,
    GenerationChunk,
    GenerationFailure,
    Heartbeat,
    Progress,
    Stop,
)
from draftproof.serving.worker import EngineLost, EngineWorker

HEARTBEAT_SECONDS = 0.25
PARENT_GONE = 3
"""Exit code when nobody is there to read it."""
DEFECT = 70

_LOG = logging.getLogger("draftproof.serving")


def run_engine_process(connection: Connection, factory: EngineFactory, logs: LogSettings) -> None:
    """Make the engine and serve commands until told to stop.

    Args:
        connection: the other end of the pipe that `EngineProcess` holds.
        factory: makes the engine.
        logs: what goes to standard error.
    """
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    configure_logs(logs)
    inbox: SimpleQueue[EngineCommand] = SimpleQueue()
    Thread(target=_read, args=(connection, inbox), name="commands", daemon=True).start()
    link = _Link(connection)
    try:
        _serve(link, inbox, factory)
    except Exception as error:  # noqa: BLE001 - the last line of defence says what it was
        link.send([_crash(error)])
    # Nothing here needs an orderly end, and libraries of GPUs and threads take long over theirs.
    os._exit(0)


@dataclass
class _Link:
    """The way to the other process, which may be gone: then this one ends too."""

    connection: Connection
    next_heartbeat: float = field(default_factory=time.monotonic)

    def send(self, messages: list[EngineMessage]) -> None:
        """All of a step in one message."""
        if not messages:
            return
        try:
            self.connection.send(tuple(messages))
        except OSError:
            os._exit(PARENT_GONE)


def _serve(link: _Link, inbox: SimpleQueue[EngineCommand], factory: EngineFactory) -> None:
    served = factory.make(lambda line: link.send([Progress(line)]))
    worker = EngineWorker(served, time.monotonic)
    # Hundreds of thousands of objects that stay: no collection in the middle of a step looks at them again.
    gc.collect()
    gc.freeze()
    link.send([served.ready])
    while True:
        messages: list[EngineMessage] = []
        for command in _commands(inbox, worker.has_work):
            if isinstance(command, Stop):
                return
            _gather(link, messages, worker.take(command))
        if worker.has_work:
            _gather(link, messages, worker.step())
        # With every end too: whoever has an answer finds it counted.
        if time.monotonic() >= link.next_heartbeat or any(_is_end(message) for message in messages):
            link.next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
            messages.append(Heartbeat(worker.status))
        link.send(messages)


def _is_end(message: EngineMessage) -> bool:
    if isinstance(message, GenerationChunk):
        return message.finish_reason is not None
    return isinstance(message, GenerationFailure)


def _gather(link: _Link, messages: list[EngineMessage], found: Iterator[EngineMessage]) -> None:
    """Add what is found; when the engine is lost over it, what was found out before is sent all the same."""
    try:
        for message in found:
            messages.append(message)
    except EngineLost:
        link.send(messages)
        raise


def _commands(inbox: SimpleQueue[EngineCommand], has_work: bool) -> list[EngineCommand]:
    """All that came; without work, what comes until the next heartbeat."""
    commands: list[EngineCommand] = []
    try:
        if not has_work:
            commands.append(inbox.get(timeout=HEARTBEAT_SECONDS))
        while True:
            commands.append(inbox.get_nowait())
    except Empty:
        return commands


def _read(connection: Connection, inbox: SimpleQueue[EngineCommand]) -> None:
    """Take commands from the pipe whatever the engine is doing, so that its other end never waits."""
    while True:
        try:
            inbox.put(connection.recv())
        except (EOFError, OSError):
            os._exit(PARENT_GONE)


def _crash(error: Exception) -> EngineCrashed:
    known = known_problem(error)
    if known is not None:
        return EngineCrashed(str(known), known.exit_code)
    _LOG.error("the engine process failed", exc_info=error)
    return EngineCrashed(f"{type(error).__name__}: {error}".splitlines()[0], DEFECT)
