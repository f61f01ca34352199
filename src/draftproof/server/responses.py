"""`/v1/responses`: a conversation gets its answer, in OpenAI's newer shape. Nothing is kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from draftproof.server.answer import Call
from draftproof.server.chat import chat_call
from draftproof.server.chat_choice import ChatChoice
from draftproof.server.choices import choice_chunks
from draftproof.server.client_watch import while_connected
from draftproof.server.context import ServerContext
from draftproof.server.errors import ApiError
from draftproof.server.event_stream import EventStream
from draftproof.server.field_policy import UNSUPPORTED_IN_RESPONSES, FieldPolicy
from draftproof.server.json_response import JsonResponse
from draftproof.server.json_route import JsonRoute
from draftproof.server.models import require_model
from draftproof.server.responses_input import chat_body_of
from draftproof.server.responses_items import COMPLETED, IN_PROGRESS, INCOMPLETE, OutputItems
from draftproof.server.schemas.answers import RESPONSES_RESPONSES
from draftproof.server.schemas.responses import ResponsesBody
from draftproof.serving.client import EngineClient
from draftproof.speculation.acceptance import FinishReason

PATH = "/v1/responses"
Json = dict[str, Any]


@dataclass(frozen=True)
class ResponseCall:
    """A checked request.

    Attributes:
        call: the chat request that asks for the same.
        choice: its only choice.
        echo: what the answer repeats of the body.
    """

    call: Call
    choice: ChatChoice
    echo: Json

    def response(self, output: OutputItems, status: str) -> Json:
        """The response as it is now."""
        head = self.call.head
        is_over = status != IN_PROGRESS
        reason = {"reason": "max_output_tokens"} if status == INCOMPLETE else None
        warning = {} if head.warning is None else {"warning": head.warning}
        return {
            "id": head.answer_id,
            "object": "response",
            "created_at": head.created,
            "status": status,
            "error": None,
            "incomplete_details": reason,
            "model": head.model,
            "output": output.items if is_over else [],
            **self.echo,
            "usage": _usage(self.call.usage) if is_over else None,
            "metrics": self.call.metrics if is_over else None,
            **warning,
        }


class NumberedEvents:
    """Encodes the events of one stream, which carry their types and numbers."""

    def __init__(self) -> None:
        self._next = 0

    def bytes_of(self, events: Sequence[Json]) -> bytes:
        """The next events of the stream."""
        first, self._next = self._next, self._next + len(events)
        return b"".join(
            b"event: "
            + event["type"].encode()
            + b"\ndata: "
            + orjson.dumps({**event, "sequence_number": number})
            + b"\n\n"
            for number, event in enumerate(events, first)
        )

    def failure(self, error: ApiError) -> bytes:
        """The last event of a stream that cannot be finished."""
        event = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return self.bytes_of([event])


def responses_router(context: ServerContext, policy: FieldPolicy) -> APIRouter:
    """The route."""
    router = APIRouter(route_class=JsonRoute)

    @router.post(PATH, responses=RESPONSES_RESPONSES)
    async def respond(body: ResponsesBody, request: Request) -> Response:
        """Answer a conversation; see OpenAI's reference. The whole conversation has to come each time."""
        require_model(context, body.model)
        policy.check(PATH, body.further_fields, UNSUPPORTED_IN_RESPONSES)
        made = await _call_of(context, body, request)
        headers = made.call.head.headers
        if body.stream:
            encoded = NumberedEvents()
            events = _events(context.client, made, encoded)
            return await EventStream.open(request.receive, events, encoded.failure, headers, context.settings)
        content = await while_connected(request.receive, _whole(context.client, made))
        return JsonResponse(content, headers=headers)

    return router


async def _call_of(context: ServerContext, body: ResponsesBody, request: Request) -> ResponseCall:
    call = await chat_call(context, chat_body_of(body), request, prefix="resp")
    parameters = call.requests[0].parameters
    echo: Json = {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": False,
        "temperature": parameters.temperature,
        "text": _text_of(body),
        "tool_choice": body.model_dump(include={"tool_choice"})["tool_choice"] or "auto",
        "tools": [tool.model_dump() for tool in body.tools or []],
        "top_p": parameters.top_p,
        "truncation": "disabled",
    }
    return ResponseCall(call, cast(ChatChoice, call.choices[0]), echo)


def _text_of(body: ResponsesBody) -> Json:
    form = body.text.format if body.text else None
    return {"format": form.model_dump(by_alias=True, exclude_none=True) if form else {"type": "text"}}


async def _whole(client: EngineClient, made: ResponseCall) -> Json:
    output = OutputItems()
    status = INCOMPLETE
    async with aclosing(choice_chunks(client, made.call.requests)) as arriving:
        async for item in arriving:
            for part in made.choice.parts(item.chunk):
                output.push(part)
            status = _status(item.chunk.finish_reason)
    output.finish(status)
    return made.response(output, status)


async def _events(
    client: EngineClient, made: ResponseCall, encoded: NumberedEvents
) -> AsyncGenerator[bytes, None]:
    """The stream's events."""
    output = OutputItems()
    status = INCOMPLETE
    waiting: list[Json] = [
        {"type": f"response.{kind}", "response": made.response(output, IN_PROGRESS)}
        for kind in ("created", "in_progress")
    ]
    async with aclosing(choice_chunks(client, made.call.requests)) as arriving:
        async for item in arriving:
            for part in made.choice.parts(item.chunk):
                waiting += output.push(part)
            status = _status(item.chunk.finish_reason)
            if waiting:
                yield encoded.bytes_of(waiting)
                waiting = []
    closing = output.finish(status)
    last = {"type": f"response.{status}", "response": made.response(output, status)}
    yield encoded.bytes_of([*closing, last])


def _status(reason: FinishReason | None) -> str:
    return COMPLETED if reason is FinishReason.STOP else INCOMPLETE


def _usage(usage: Json) -> Json:
    """`usage` under this endpoint's names."""
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"],
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": usage["completion_tokens_details"],
        "total_tokens": usage["total_tokens"],
    }
