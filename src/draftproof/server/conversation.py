"""A chat body as what the template, the grammar and the parser want to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.server.errors import ApiError
from draftproof.server.schemas.chat import ChatBody, ChatMessage, MessageToolCall, NamedToolChoice, Tool
from draftproof.server.strict_json import JsonFault, parse_json
from draftproof.text.tool_calls import ToolFunction
from draftproof.text.tool_grammar import ToolChoice, ToolChoiceMode

Json = dict[str, Any]


@dataclass(frozen=True)
class OfferedTools:
    """The functions of a conversation.

    Attributes:
        shown: as the template sees them; None for none.
        functions: that may be called, in order.
        choice: whether they may or must be.
        parallel: several may be called in one answer.
    """

    shown: tuple[Json, ...] | None
    functions: tuple[ToolFunction, ...]
    choice: ToolChoice
    parallel: bool

    @property
    def are_callable(self) -> bool:
        """An answer may hold calls."""
        return bool(self.functions) and self.choice.mode is not ToolChoiceMode.NONE


def template_messages(messages: Sequence[ChatMessage]) -> tuple[Json, ...]:
    """Messages as templates read them.

    Raises:
        ApiError: 400 naming the message and what cannot be read in it.
    """
    return tuple(_template_message(message, f"messages[{index}]") for index, message in enumerate(messages))


def offered_tools(body: ChatBody) -> OfferedTools:
    """Tools of the body.

    Raises:
        ApiError: 400, a name is there twice, or a choice cannot be met.
    """
    tools = body.tools or []
    names = [tool.function.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ApiError(400, f"tools has two functions of the name {twice!r}", param="tools")
    return OfferedTools(
        shown=template_tools(tools),
        functions=tuple(
            ToolFunction(tool.function.name, tool.function.parameters or {}, bool(tool.function.strict))
            for tool in tools
        ),
        choice=_choice(body, names),
        parallel=body.parallel_tool_calls is not False,
    )


def template_tools(tools: Sequence[Tool] | None) -> tuple[Json, ...] | None:
    """Tools as templates read them; None for none."""
    if not tools:
        return None
    return tuple(tool.model_dump(exclude_none=True) for tool in tools)


def _choice(body: ChatBody, names: Sequence[str]) -> ToolChoice:
    wanted = body.tool_choice
    if wanted in (None, "auto", "none"):
        return ToolChoice(ToolChoiceMode(wanted) if isinstance(wanted, str) else ToolChoiceMode.AUTO)
    if not names:
        raise ApiError(400, "tool_choice asks for a call and tools is empty", param="tool_choice")
    if not isinstance(wanted, NamedToolChoice):
        return ToolChoice(ToolChoiceMode.REQUIRED)
    if wanted.function.name not in names:
        raise ApiError(
            400,
            f"tool_choice names {wanted.function.name!r}; tools has {', '.join(names)}",
            param="tool_choice",
        )
    return ToolChoice(ToolChoiceMode.NAMED, wanted.function.name)


def _template_message(message: ChatMessage, path: str) -> Json:
    role = "system" if message.role == "developer" else message.role
    shown: Json = {**message.further_fields, "role": role, "content": _content(message, path)}
    if message.name is not None:
        shown["name"] = message.name
    if message.tool_call_id is not None:
        shown["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        shown["tool_calls"] = [
            _tool_call(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls)
        ]
    reasoning = message.reasoning if message.reasoning is not None else message.reasoning_content
    if reasoning is not None:
        shown["reasoning_content"] = reasoning
    return shown


def _content(message: ChatMessage, path: str) -> str | list[Json]:
    """A text; several parts stay parts, as the template knows what belongs between them."""
    content = message.content
    if content is None:
        if message.role != "assistant":
            raise ApiError(400, f"{path}.content is missing", param=f"{path}.content")
        return ""
    if isinstance(content, str):
        return content
    parts: list[Json] = []
    for index, part in enumerate(content):
        where = f"{path}.content[{index}]"
        if part.type not in ("text", "input_text", "output_text") or part.text is None:
            raise ApiError(
                400,
                f"{where} is a part of type {part.type[:40]!r}; this server reads text only",
                param=f"{where}.type",
                code="unsupported_content",
            )
        parts.append({"type": "text", "text": part.text})
    return str(parts[0]["text"]) if len(parts) == 1 else parts


def _tool_call(call: MessageToolCall, path: str) -> Json:
    """A call with its arguments as an object, which templates go through."""
    problem = ApiError(
        400, f"{path}.function.arguments is no JSON object", param=f"{path}.function.arguments"
    )
    try:
        arguments = parse_json(call.function.arguments or "{}")
    except JsonFault as error:
        raise problem from error
    if not isinstance(arguments, dict):
        raise problem
    shown: Json = {
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }
    return shown if call.id is None else {"id": call.id, **shown}
