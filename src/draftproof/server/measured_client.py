"""An engine client that counts and times what passes through it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from time import monotonic
from typing import Protocol, cast

from draftproof.engine.status import EngineStatus
from draftproof.server.request_times import Duration, Observation, RequestEnd
from draftproof.server.running_requests import RunningRequest, RunningRequests
from draftproof.serving.client import EngineClient, GenerationFailed, Health, QueueFull
from draftproof.serving.messages import EngineReady, FailureKind, GenerationChunk, GenerationRequest
from draftproof.speculation.acceptance import FinishReason

_FAILURES = {
    FailureKind.REFUSED: RequestEnd.REFUSED,
    FailureKind.FAULT: RequestEnd.FAULT,
    FailureKind.DEADLINE: RequestEnd.DEADLINE,
    FailureKind.STOPPED: RequestEnd.STOPPED,
}
_FINISHES = {FinishReason.STOP: RequestEnd.STOP, FinishReason.LENGTH: RequestEnd.LENGTH}


class RequestRecorder(Protocol):
    """Takes what was measured."""

    def observe(self, observation: Observation) -> None:
        """One value."""
        ...

    def count_end(self, end: RequestEnd) -> None:
        """One request ended."""
        ...


class MeasuredClient:
    """An `EngineClient` around another one: the same answers, and every request measured.

    Args:
        client: answers.
        recorder: takes the measurements.
        requests: is kept up to date with what is in flight.
        clock: seconds that only go up.
    """

    def __init__(
        self,
        client: EngineClient,
        recorder: RequestRecorder,
        requests: RunningRequests,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._requests = requests
        self._clock = clock

    @property
    def ready(self) -> EngineReady:
        """What the engine said when it was made."""
        return self._client.ready

    @property
    def status(self) -> EngineStatus:
        """The engine's latest."""
        return self._client.status

    @property
    def health(self) -> Health:
        """Of the engine."""
        return self._client.health

    async def reset_prefix_cache(self) -> None:
        """Forget kept prompts."""
        await self._client.reset_prefix_cache()

    async def stream(self, request: GenerationRequest) -> AsyncIterator[GenerationChunk]:
        """The request's chunks, see `EngineClient.stream`; aborted when nobody takes the last one."""
        running = self._requests.begin(request, self._clock())
        end = RequestEnd.ABORT
        try:
            # The protocol says that its iterator can be closed, as a generator can.
            chunks = cast(AsyncGenerator[GenerationChunk, None], self._client.stream(request))
            async with aclosing(chunks):
                async for chunk in chunks:
                    self._take(running, chunk)
                    if chunk.finish_reason is not None:
                        end = _FINISHES[chunk.finish_reason]
                    yield chunk
        except QueueFull:
            end = RequestEnd.QUEUE_FULL
            raise
        except GenerationFailed as error:
            end = _FAILURES[error.kind]
            raise
        finally:
            self._requests.end(request.request_id)
            self._recorder.count_end(end)
            if end.is_answer:
                self._observe_whole(running)

    def _take(self, running: RunningRequest, chunk: GenerationChunk) -> None:
        """Time one chunk's tokens; a chunk of text alone (held back before) has none."""
        now = self._clock()
        tokens = len(chunk.token_ids)
        running.usage = chunk.usage
        if not tokens:
            return
        self._requests.count_tokens(tokens, now)
        if running.first_token_at is None or running.last_token_at is None:
            running.first_token_at = now
            running.first_tokens = tokens
            self._recorder.observe(Observation(Duration.FIRST_TOKEN, now - running.arrived_at))
        else:
            share = (now - running.last_token_at) / tokens
            self._recorder.observe(Observation(Duration.NEXT_TOKEN, share, tokens))
        running.last_token_at = now

    def _observe_whole(self, running: RunningRequest) -> None:
        """What is known only at the end."""
        usage = running.usage
        observe = self._recorder.observe
        observe(Observation(Duration.WHOLE, self._clock() - running.arrived_at))
        if usage is None:
            return
        observe(Observation(Duration.PROMPT_TOKENS, usage.prompt_tokens))
        observe(Observation(Duration.OUTPUT_TOKENS, usage.completion_tokens))
        observe(Observation(Duration.QUEUED, usage.queued_seconds))
        observe(Observation(Duration.PROMPT, usage.prompt_seconds))
        if running.first_token_at is None or running.last_token_at is None:
            return
        decode = running.last_token_at - running.first_token_at
        observe(Observation(Duration.DECODE, decode))
        later = usage.completion_tokens - running.first_tokens
        if later > 0:
            observe(Observation(Duration.MEAN_TOKEN, decode / later))
