"""The engine process as the process that started it sees it: start, commands, messages, end."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from threading import Thread

from draftproof.errors import DraftproofError
from draftproof.serving.factory import EngineFactory
from draftproof.serving.logs import LogSettings
from draftproof.serving.messages import (
    EngineCommand,
    EngineCrashed,
    EngineMessage,
    EngineReady,
    Progress,
    Stop,
)
from draftproof.serving.process_main import run_engine_process

DIED_WHILE_STARTING = 4
"""Exit code when the process ends without a word: as a rule the system ended it for want of memory."""

_LOG = logging.getLogger("draftproof.serving")

Messages = tuple[EngineMessage, ...]


class EngineStartFailed(DraftproofError):
    """The engine could not be made.

    Args:
        message: the engine process's own line.
        exit_code: what the command line exits with.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class EngineProcess:
    """A started engine process. Made by `start`.

    Args:
        process: running.
        connection: this process's end of the pipe.
        ready: what the engine said of itself.
    """

    def __init__(self, process: BaseProcess, connection: Connection, ready: EngineReady) -> None:
        self.ready = ready
        self._process = process
        self._connection = connection
        self._outbox: SimpleQueue[EngineCommand | None] = SimpleQueue()
        Thread(target=self._write, name="engine commands", daemon=True).start()

    @classmethod
    def start(
        cls, factory: EngineFactory, report: Callable[[str], None], logs: LogSettings | None = None
    ) -> EngineProcess:
        """Start the process and wait until its engine takes requests.

        Args:
            factory: makes the engine.
            report: takes a line for each part of the work.
            logs: what the process sends to standard error.

        Raises:
            EngineStartFailed: the engine could not be made; no process is left.
        """
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=run_engine_process,
            args=(theirs, factory, logs or LogSettings()),
            name="draftproof-engine",
            daemon=True,
        )
        with _interrupts_ignored():
            process.start()
        theirs.close()
        try:
            return cls(process, ours, _wait_until_ready(ours, process, report))
        except BaseException:
            process.kill()
            process.join()
            raise

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def send(self, command: EngineCommand) -> None:
        """Hand over a command; never waits, and never fails: the end of the process comes as a message."""
        self._outbox.put(command)

    def messages(self) -> Iterator[Messages]:
        """All that the process says, until it is gone. For one thread of its own."""
        while True:
            try:
                yield self._connection.recv()
            except (EOFError, OSError):
                return

    def ending(self) -> str:
        """How the process ended, in words, once `messages` has."""
        self._process.join(1.0)
        return _ending(self._process)

    def stop(self, seconds: float) -> None:
        """Ask the process to end; after so long it is killed."""
        self.send(Stop())
        self._process.join(seconds)
        self.kill()
        self._process.join(seconds)

    def kill(self) -> None:
        """End the process without waiting for it; harmless when it has ended."""
        self._process.kill()
        self._outbox.put(None)

    def _write(self) -> None:
        """Write commands into the pipe, in a thread: a process that hangs must not hold up this one."""
        while (command := self._outbox.get()) is not None:
            try:
                self._connection.send(command)
            except OSError:
                return


def _wait_until_ready(
    connection: Connection, process: BaseProcess, report: Callable[[str], None]
) -> EngineReady:
    while True:
        try:
            messages: Messages = connection.recv()
        except (EOFError, OSError) as error:
            process.join()
            raise EngineStartFailed(
                f"the engine process ended while it was starting ({_ending(process)})", DIED_WHILE_STARTING
            ) from error
        for message in messages:
            match message:
                case Progress():
                    report(message.message)
                case EngineReady():
                    return message
                case EngineCrashed():
                    raise EngineStartFailed(message.message, message.exit_code)
                case _:
                    _LOG.warning("the engine process said %s before it was ready", type(message).__name__)


def _ending(process: BaseProcess) -> str:
    code = process.exitcode
    if code is None:
        return "it is still running"
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    hint = "; the system does this when memory runs out" if name == "SIGKILL" else ""
    return f"ended by {name}{hint}"


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """A process that is started inside ignores Ctrl-C from its first moment on: it is inherited."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
