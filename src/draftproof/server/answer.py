"""How an answer is given, whole or as a stream, whatever its shape: one place for both endpoints."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request
from starlette.responses import Response

from draftproof.server.answer_head import AnswerHead
from draftproof.server.choices import choice_chunks
from draftproof.server.client_watch import while_connected
from draftproof.server.context import ServerContext
from draftproof.server.event_stream import DONE, EventStream, error_event, event
from draftproof.server.json_response import JsonResponse
from draftproof.server.usage import ChoiceUsage, metrics_of, usage_of
from draftproof.serving.client import EngineClient, GenerationFailed
from draftproof.serving.messages import FailureKind, GenerationChunk, GenerationRequest


class Choice(Protocol):
    """The shape of one choice."""

    def entries(self, chunk: GenerationChunk) -> Sequence[dict[str, Any]]:
        """The next chunk as items of `choices` in a stream; none when it shows nothing."""
        ...

    def whole(self, output: GenerationChunk) -> dict[str, Any]:
        """The whole output, given as one chunk, as an item of `choices`."""
        ...

    @property
    def cost(self) -> ChoiceUsage:
        """Of what was taken so far."""
        ...


@dataclass(frozen=True)
class Call:
    """A checked request to generate.

    Attributes:
        head: of its answer.
        kind: name of the whole answer's object.
        chunk_kind: name of a chunk's object.
        requests: to the engine, one a choice.
        choices: shapes, one a request.
        includes_usage: a stream ends with usage.
        repeats_usage: each chunk has usage so far.
        draft_tokens: most drafts of one pass.
    """

    head: AnswerHead
    kind: str
    chunk_kind: str
    requests: tuple[GenerationRequest, ...]
    choices: tuple[Choice, ...]
    includes_usage: bool
    repeats_usage: bool
    draft_tokens: int

    @property
    def usage(self) -> dict[str, Any]:
        """Of all choices so far."""
        return usage_of([choice.cost for choice in self.choices])

    @property
    def metrics(self) -> dict[str, Any] | None:
        """Of the only choice."""
        return metrics_of([choice.cost for choice in self.choices], self.draft_tokens)


async def whole_answer(context: ServerContext, request: Request, call: Call) -> Response:
    """The answer as one JSON object.

    Raises:
        ApiError, DraftproofError: it cannot be given.
    """
    content = await while_connected(request.receive, _whole(context.client, call))
    return JsonResponse(content, headers=call.head.headers)


async def streamed_answer(context: ServerContext, request: Request, call: Call) -> Response:
    """The answer as events.

    Raises:
        ApiError, DraftproofError: it ended before it began.
    """
    events = _events(context.client, call)
    return await EventStream.open(request.receive, events, error_event, call.head.headers, context.settings)


async def _whole(client: EngineClient, call: Call) -> dict[str, Any]:
    chunks: list[list[GenerationChunk]] = [[] for _ in call.choices]
    async with aclosing(choice_chunks(client, call.requests)) as arriving:
        async for item in arriving:
            chunks[item.index].append(item.chunk)
    choices = [choice.whole(_joined(part)) for choice, part in zip(call.choices, chunks, strict=True)]
    return {
        **call.head.fields(call.kind),
        "choices": choices,
        "usage": call.usage,
        "metrics": call.metrics,
    }


def _joined(chunks: Sequence[GenerationChunk]) -> GenerationChunk:
    """All chunks of an output as one."""
    if not chunks or chunks[-1].finish_reason is None:
        raise GenerationFailed(FailureKind.FAULT, "the engine ended the output without a reason")
    last = chunks[-1]
    return GenerationChunk(
        request_id=last.request_id,
        text="".join(chunk.text for chunk in chunks),
        token_ids=tuple(token_id for chunk in chunks for token_id in chunk.token_ids),
        logprobs=tuple(item for chunk in chunks for item in chunk.logprobs),
        usage=last.usage,
        finish_reason=last.finish_reason,
        matched_stop=last.matched_stop,
    )


async def _events(client: EngineClient, call: Call) -> AsyncGenerator[bytes, None]:
    """The stream's events."""
    head = call.head.fields(call.chunk_kind)
    async with aclosing(choice_chunks(client, call.requests)) as arriving:
        async for item in arriving:
            entries = call.choices[item.index].entries(item.chunk)
            if entries:
                yield b"".join([event(_chunk(head, call, entry)) for entry in entries])
    yield (event(_last_chunk(head, call)) if call.includes_usage else b"") + DONE


def _chunk(head: dict[str, Any], call: Call, entry: dict[str, Any]) -> dict[str, Any]:
    chunk = {**head, "choices": [entry]}
    if call.repeats_usage:
        chunk["usage"] = call.usage
    elif call.includes_usage:
        chunk["usage"] = None
    # Load tools read them in the last chunk, which is this one unless usage follows.
    if entry["finish_reason"] is not None and not call.includes_usage:
        chunk["metrics"] = call.metrics
    return chunk


def _last_chunk(head: dict[str, Any], call: Call) -> dict[str, Any]:
    return {**head, "choices": [], "usage": call.usage, "metrics": call.metrics}
