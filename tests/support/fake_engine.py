"""An engine client for tests of the HTTP API: it answers with what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from draftproof.engine.request import TokenLogprob
from draftproof.engine.status import EngineStatus
from draftproof.serving.client import Health, HealthState
from draftproof.serving.messages import EngineReady, GenerationChunk, GenerationRequest, GenerationUsage
from draftproof.speculation.acceptance import AcceptanceCounts, FinishReason

READY = EngineReady(
    max_length=512,
    max_sequences=4,
    vocabulary_size=4096,
    end_token_ids=(0,),
    drafter_name="nextn",
    draft_tokens=3,
    device="cpu",
)
QUEUED_SECONDS, PROMPT_SECONDS = 0.25, 0.5


@dataclass(frozen=True)
class Piece:
    """What one step adds.

    Attributes:
        text: new text.
        token_ids: new tokens.
        logprobs: of the tokens.
        accepted: drafts accepted by this step's pass of K drafts.
    """

    text: str
    token_ids: tuple[int, ...] = (1,)
    logprobs: tuple[TokenLogprob, ...] = ()
    accepted: int = 0


@dataclass(frozen=True)
class Answer:
    """A whole answer.

    Attributes:
        pieces: one a step.
        finish_reason: of the last.
        matched_stop: likewise.
        cached_tokens: of the prompt.
        error: raised after the pieces instead of finishing.
        step_seconds: waited before each step.
        never_ends: after the pieces nothing more comes.
    """

    pieces: tuple[Piece, ...] = (Piece("Hello"), Piece(" world"))
    finish_reason: FinishReason = FinishReason.STOP
    matched_stop: str | None = None
    cached_tokens: int = 0
    error: Exception | None = None
    step_seconds: float = 0.0
    never_ends: bool = False


@dataclass
class FakeEngineClient:
    """Answers each request with `answer(request)` and remembers what came.

    Attributes:
        answer: what to say.
        ready: what the engine said at its start.
        status: of the engine.
        health: likewise.
        requests: all that came, in order.
        aborted: ids of requests whose stream was closed before its end.
        prefix_resets: calls of `reset_prefix_cache`.
    """

    answer: Callable[[GenerationRequest], Answer] = lambda request: Answer()
    ready: EngineReady = READY
    status: EngineStatus = field(default_factory=EngineStatus)
    health: Health = field(default_factory=lambda: Health(HealthState.READY))
    requests: list[GenerationRequest] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    prefix_resets: int = 0

    async def stream(self, request: GenerationRequest) -> AsyncIterator[GenerationChunk]:
        """The chunks of the answer."""
        self.requests.append(request)
        is_finished = False
        try:
            async for chunk in self._chunks(request, self.answer(request)):
                is_finished = chunk.finish_reason is not None
                yield chunk
        except Exception:
            is_finished = True
            raise
        finally:
            if not is_finished:
                self.aborted.append(request.request_id)

    async def reset_prefix_cache(self) -> None:
        """Count the call."""
        self.prefix_resets += 1

    async def _chunks(self, request: GenerationRequest, answer: Answer) -> AsyncIterator[GenerationChunk]:
        draft_tokens = self.ready.draft_tokens
        usages = _usages(len(request.prompt_ids), answer, draft_tokens)
        is_open = answer.never_ends or answer.error is not None
        for index, (piece, usage) in enumerate(zip(answer.pieces, usages, strict=True)):
            await asyncio.sleep(answer.step_seconds)
            is_last = index == len(answer.pieces) - 1 and not is_open
            yield GenerationChunk(
                request_id=request.request_id,
                text=piece.text,
                token_ids=piece.token_ids,
                logprobs=piece.logprobs,
                usage=usage,
                finish_reason=answer.finish_reason if is_last else None,
                matched_stop=answer.matched_stop if is_last else None,
            )
        if answer.error is not None:
            raise answer.error
        if answer.never_ends:
            await asyncio.Event().wait()


def _usages(prompt_tokens: int, answer: Answer, draft_tokens: int) -> Sequence[GenerationUsage]:
    """Usage after each piece."""
    acceptance, completion = AcceptanceCounts(), 0
    histogram = [0] * (draft_tokens + 1)
    usages = []
    for piece in answer.pieces:
        completion += len(piece.token_ids)
        acceptance += AcceptanceCounts.of_pass(draft_tokens, piece.accepted, piece.accepted + 1)
        histogram[piece.accepted] += 1
        usages.append(
            GenerationUsage(
                prompt_tokens,
                answer.cached_tokens,
                completion,
                acceptance,
                tuple(histogram),
                QUEUED_SECONDS,
                PROMPT_SECONDS,
            )
        )
    return usages
