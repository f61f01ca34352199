"""Body of `/v1/responses`: OpenAI's newer way to ask for the same. Nothing is kept between requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from draftproof.server.schemas.base import WireModel
from draftproof.server.schemas.chat import FunctionDefinition, ReasoningEffort
from draftproof.server.schemas.fields import GenerationFields, TokenCount


class InputPart(WireModel):
    """A part of an item.

    Attributes:
        type: of the part; only text can be read.
        text: when it is text.
    """

    type: str
    text: str | None = None


class InputItem(WireModel):
    """One item of the conversation; which fields it needs depends on its type.

    Attributes:
        type: a message when left out.
        role: of a message.
        content: of a message or of reasoning.
        call_id: that a call has, and that its output names.
        name: of the called function.
        arguments: JSON of an object, as a text.
        output: of a function.
    """

    type: Literal["message", "function_call", "function_call_output", "reasoning"] | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None


class ResponseTool(FunctionDefinition):
    """A function, described without the level that chat has.

    Attributes:
        type: always a function.
    """

    type: Literal["function"]


class NamedResponseTool(WireModel):
    """This function must be called.

    Attributes:
        type: always a function.
        name: that must be called.
    """

    type: Literal["function"]
    name: str


class TextFormat(WireModel):
    """Form of the text.

    Attributes:
        type: free text, any JSON object, or JSON of a schema.
        name: for people.
        schema_: JSON schema; on the wire it is named `schema`.
    """

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class TextOptions(WireModel):
    """How the text is.

    Attributes:
        format: of the text.
    """

    format: TextFormat | None = None


class ReasoningOptions(WireModel):
    """How the reasoning is.

    Attributes:
        effort: as in chat.
    """

    effort: ReasoningEffort | None = None


class ResponsesBody(GenerationFields):
    """A conversation to answer.

    Attributes:
        input: a text of the user, or the conversation's items.
        instructions: come first, as a system's message.
        max_output_tokens: most output tokens, reasoning included.
        tools: functions that may be called.
        tool_choice: whether they may or must be.
        parallel_tool_calls: false allows one call an answer.
        text: form of the text.
        reasoning: how the reasoning is.
        chat_template_kwargs: names that the template reads.
        enable_thinking: the same as in `chat_template_kwargs`.
        thinking_budget: most reasoning tokens.
        metadata: comes back with the answer.
    """

    input: str | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: TokenCount | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedResponseTool | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    thinking_budget: TokenCount | None = None
    metadata: dict[str, str] | None = None
