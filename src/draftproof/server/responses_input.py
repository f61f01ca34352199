"""A body of `/v1/responses` as the chat body that asks for the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from draftproof.server.errors import ApiError
from draftproof.server.schemas.chat import (
    CalledFunction,
    ChatBody,
    ChatMessage,
    ContentPart,
    FunctionDefinition,
    MessageToolCall,
    NamedFunction,
    NamedToolChoice,
    Tool,
)
from draftproof.server.schemas.fields import GenerationFields, JsonSchemaFormat, ResponseFormat
from draftproof.server.schemas.responses import (
    InputItem,
    InputPart,
    NamedResponseTool,
    ResponsesBody,
    ResponseTool,
)

FORM_NAME = "answer"


def chat_body_of(body: ResponsesBody) -> ChatBody:
    """The chat body that asks for the same.

    Raises:
        ApiError: 400 naming what cannot be read.
    """
    if body.choices > 1:
        raise ApiError(400, "a response has one choice; use /v1/chat/completions for more", param="n")
    shared = {name: getattr(body, name) for name in GenerationFields.model_fields}
    return ChatBody(
        **(shared | {"response_format": _form(body)}),
        messages=_messages(body),
        max_completion_tokens=body.max_output_tokens,
        tools=[_tool(tool) for tool in body.tools] if body.tools else None,
        tool_choice=_choice(body),
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        chat_template_kwargs=body.chat_template_kwargs,
        enable_thinking=body.enable_thinking,
        thinking_budget=body.thinking_budget,
    )


def _form(body: ResponsesBody) -> ResponseFormat | None:
    form = body.text.format if body.text else None
    if form is None:
        return body.response_format
    if form.type != "json_schema":
        return ResponseFormat(type=form.type)
    schema = JsonSchemaFormat.model_validate({"name": form.name or FORM_NAME, "schema": form.schema_})
    return ResponseFormat(type="json_schema", json_schema=schema)


def _tool(tool: ResponseTool) -> Tool:
    function = FunctionDefinition(
        name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict
    )
    return Tool(type="function", function=function)


def _choice(body: ResponsesBody) -> Literal["auto", "none", "required"] | NamedToolChoice | None:
    wanted = body.tool_choice
    if isinstance(wanted, NamedResponseTool):
        return NamedToolChoice(type="function", function=NamedFunction(name=wanted.name))
    return wanted


def _messages(body: ResponsesBody) -> list[ChatMessage]:
    """Items as messages: reasoning, text and calls of one turn are one message of the assistant."""
    messages: list[ChatMessage] = []
    if body.instructions is not None:
        messages.append(ChatMessage(role="system", content=body.instructions))
    if isinstance(body.input, str):
        return [*messages, ChatMessage(role="user", content=body.input)]
    for index, item in enumerate(body.input):
        _add(messages, item, f"input[{index}]")
    return messages


def _add(messages: list[ChatMessage], item: InputItem, path: str) -> None:
    match item.type:
        case "function_call":
            if item.name is None or item.arguments is None:
                raise _missing(f"{path}.name" if item.name is None else f"{path}.arguments")
            called = CalledFunction(name=item.name, arguments=item.arguments)
            call = MessageToolCall(id=item.call_id, function=called)
            calls = [*(_assistant(messages).tool_calls or []), call]
            messages[-1] = messages[-1].model_copy(update={"tool_calls": calls})
        case "function_call_output":
            output = _content(item.output, f"{path}.output")
            messages.append(ChatMessage(role="tool", content=output, tool_call_id=item.call_id))
        case "reasoning":
            # What a provider hides comes without content, and nothing can be made of it.
            parts = item.content if isinstance(item.content, list) else []
            text = "".join(part.text or "" for part in parts)
            messages.append(ChatMessage(role="assistant", reasoning=text))
        case _:
            if item.role is None:
                raise _missing(f"{path}.role")
            role = item.role
            content = _content(item.content, f"{path}.content")
            last = messages[-1] if messages else None
            if role == "assistant" and last is not None and last.role == role and last.content is None:
                messages[-1] = last.model_copy(update={"content": content})
            else:
                messages.append(ChatMessage(role=role, content=content))


def _assistant(messages: list[ChatMessage]) -> ChatMessage:
    """The last message, which is the assistant's: one is added when it is not."""
    if not messages or messages[-1].role != "assistant":
        messages.append(ChatMessage(role="assistant"))
    return messages[-1]


def _content(content: str | Sequence[InputPart] | None, path: str) -> str | list[ContentPart]:
    if content is None:
        raise _missing(path)
    if isinstance(content, str):
        return content
    return [ContentPart(type=part.type, text=part.text) for part in content]


def _missing(path: str) -> ApiError:
    return ApiError(400, f"{path} is missing", param=path)
