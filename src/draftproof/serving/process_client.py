"""The engine process behind the protocol that the HTTP server knows, in one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from threading import Thread
from time import monotonic

from draftproof.engine.status import EngineStatus
from draftproof.serving.client import GenerationFailed, Health, HealthState, QueueFull
from draftproof.serving.engine_process import EngineProcess, Messages
from draftproof.serving.mailbox import Mailbox
from draftproof.serving.messages import (
    Abort,
    EngineCrashed,
    EngineMessage,
    EngineReady,
    FailureKind,
    GenerationChunk,
    GenerationFailure,
    GenerationRequest,
    Heartbeat,
    PrefixCacheReset,
    ResetPrefixCache,
)
from draftproof.serving.queue_limit import QueueLimit

STOP_SECONDS = 5.0
"""An engine process that was told to end and has not after so long is killed."""

_LOG = logging.getLogger("draftproof.serving")


@dataclass(frozen=True)
class ServingLimits:
    """What the client puts up with.

    Attributes:
        max_queue: requests that may wait besides those that run.
        stall_seconds: an engine with work that says nothing for so long is given up.
    """

    max_queue: int = 256
    stall_seconds: float = 60.0


@dataclass(eq=False)
class _InFlight:
    """A request that the engine has; `mailbox` is read by whoever waits for the answer."""

    mailbox: Mailbox
    since: float


class ProcessEngineClient:
    """Requests in, chunks out, over the pipe of an engine process.

    To be made, used and closed in one running event loop.

    Args:
        process: started.
        limits: of queue and patience.
    """

    def __init__(self, process: EngineProcess, limits: ServingLimits) -> None:
        self._process = process
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._queue = QueueLimit(process.ready.max_sequences, limits.max_queue)
        self._in_flight: dict[str, _InFlight] = {}
        self._readers = 0
        self._resets: list[asyncio.Future[None]] = []
        self._status = EngineStatus()
        self._heard_at = monotonic()
        self._failure: str | None = None
        self._draining = False
        self._closed = False
        self._warnings = _warnings(process.ready)
        self._idle = asyncio.Event()
        self._idle.set()
        self.failed = asyncio.Event()
        Thread(target=self._read, name="engine messages", daemon=True).start()
        self._watch()

    @property
    def ready(self) -> EngineReady:
        """What the engine said when it was made."""
        return self._process.ready

    @property
    def status(self) -> EngineStatus:
        """The latest."""
        return self._status

    @property
    def health(self) -> Health:
        """Of the engine."""
        if self._failure is not None:
            return Health(HealthState.FAILED, (self._failure,))
        if self._draining:
            return Health(HealthState.DRAINING, ("the server is shutting down",))
        if self._status.alarms:
            alarms = tuple(alarm.message for alarm in self._status.alarms)
            return Health(HealthState.DEGRADED, (*alarms, *self._warnings))
        return Health(HealthState.READY, self._warnings)

    async def stream(self, request: GenerationRequest) -> AsyncIterator[GenerationChunk]:
        """Run a request, see `EngineClient.stream`."""
        self._require_place(request.request_id)
        in_flight = _InFlight(Mailbox(), monotonic())
        self._in_flight[request.request_id] = in_flight
        self._readers += 1
        self._idle.clear()
        self._process.send(request)
        try:
            while True:
                item = await in_flight.mailbox.take()
                if isinstance(item, GenerationFailure):
                    raise GenerationFailed(item.kind, item.message)
                yield item
                if item.finish_reason is not None:
                    return
        finally:
            if self._in_flight.get(request.request_id) is in_flight:
                del self._in_flight[request.request_id]
                self._process.send(Abort(request.request_id))
            self._readers -= 1
            if not self._readers:
                self._idle.set()

    async def reset_prefix_cache(self) -> None:
        """Forget kept prompts."""
        self._require_engine()
        answer: asyncio.Future[None] = self._loop.create_future()
        self._resets.append(answer)
        self._process.send(ResetPrefixCache())
        await answer

    async def drain(self, seconds: float) -> None:
        """Take no further requests and wait until those that run have been answered.

        Args:
            seconds: how long to wait; those that are not finished then end with an error.
        """
        self._draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            _LOG.warning("%d requests were not finished within %g seconds", len(self._in_flight), seconds)
            for request_id in tuple(self._in_flight):
                self._process.send(Abort(request_id))
                self._end(request_id, FailureKind.STOPPED, "the server is shutting down")

    async def close(self) -> None:
        """End the engine process."""
        self._closed = True
        await asyncio.to_thread(self._process.stop, STOP_SECONDS)

    def _require_place(self, request_id: str) -> None:
        self._require_engine()
        if self._draining:
            raise GenerationFailed(FailureKind.STOPPED, "the server is shutting down")
        if request_id in self._in_flight:
            raise ValueError(f"request id {request_id} is in use")
        if not self._queue.has_room(len(self._in_flight)):
            seconds = self._queue.retry_after()
            raise QueueFull(
                f"{self._queue.waiting} requests are waiting already, as many as --max-queue allows; "
                f"try again in {seconds} s",
                seconds,
            )

    def _require_engine(self) -> None:
        if self._failure is not None:
            raise GenerationFailed(FailureKind.STOPPED, self._failure)

    def _read(self) -> None:
        """In a thread: hand what the process says to the event loop."""
        try:
            for messages in self._process.messages():
                self._loop.call_soon_threadsafe(self._take_all, messages)
            self._loop.call_soon_threadsafe(self._lost)
        except RuntimeError:
            # The loop is closed; nobody is left to be told.
            return

    def _take_all(self, messages: Messages) -> None:
        self._heard_at = monotonic()
        for message in messages:
            self._take(message)

    def _take(self, message: EngineMessage) -> None:
        match message:
            case GenerationChunk():
                self._deliver(message)
            case GenerationFailure():
                self._end(message.request_id, message.kind, message.message)
            case Heartbeat():
                self._status = message.status
            case PrefixCacheReset():
                answer = self._resets.pop(0)
                if not answer.done():
                    answer.set_result(None)
            case EngineCrashed():
                self._fail(f"the engine crashed: {message.message}")
            case _:
                _LOG.warning("the engine said %s while it was serving", type(message).__name__)

    def _deliver(self, chunk: GenerationChunk) -> None:
        in_flight = self._in_flight.get(chunk.request_id)
        if in_flight is None:
            return
        if chunk.finish_reason is not None:
            del self._in_flight[chunk.request_id]
            self._queue.note_finished(monotonic() - in_flight.since)
        in_flight.mailbox.put(chunk)

    def _end(self, request_id: str, kind: FailureKind, message: str) -> None:
        in_flight = self._in_flight.pop(request_id, None)
        if in_flight is not None:
            in_flight.mailbox.put(GenerationFailure(request_id, kind, message))

    def _lost(self) -> None:
        """The process is gone."""
        if not self._closed and self._failure is None:
            self._fail(f"the engine process ended ({self._process.ending()})")

    def _fail(self, reason: str) -> None:
        """Nothing will be answered any more."""
        _LOG.critical("%s; no request can be answered until the server is started again", reason)
        self._failure = reason
        for request_id in tuple(self._in_flight):
            self._end(request_id, FailureKind.STOPPED, reason)
        for answer in self._resets:
            if not answer.done():
                answer.set_exception(GenerationFailed(FailureKind.STOPPED, reason))
        self._resets.clear()
        self._process.kill()
        self.failed.set()

    def _watch(self) -> None:
        """Again and again: give an engine up that has work and says nothing."""
        if self._failure is not None or self._closed:
            return
        if self._in_flight:
            oldest = min(each.since for each in self._in_flight.values())
            silent = monotonic() - max(self._heard_at, oldest)
            if silent > self._limits.stall_seconds:
                self._fail(f"the engine has said nothing for {silent:.0f} seconds")
                return
        self._loop.call_later(min(self._limits.stall_seconds / 4, 1.0), self._watch)


def _warnings(ready: EngineReady) -> tuple[str, ...]:
    """What whoever asks for the engine's health is always told."""
    if ready.simulated_accept_length is None:
        return ()
    length = f"accept length {ready.simulated_accept_length:g}"
    return (f"acceptance is simulated ({length}): the text of every answer means nothing",)
