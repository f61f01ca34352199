"""Body of `/v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from draftproof.server.schemas.base import Integer, WireModel
from draftproof.server.schemas.fields import GenerationFields, TokenCount

MOST_LOGPROBS = 20
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
FUNCTION_NAME = r"^[A-Za-z0-9_.-]{1,128}$"


class ContentPart(WireModel):
    """A part of a message.

    Attributes:
        type: of the part; only text can be read.
        text: when it is text.
    """

    type: str
    text: str | None = None


class CalledFunction(WireModel):
    """A function that an earlier answer called.

    Attributes:
        name: of the function.
        arguments: JSON of an object, as a text.
    """

    name: str
    arguments: str


class MessageToolCall(WireModel):
    """A call in an earlier answer.

    Attributes:
        id: that the tool's message names.
        type: always a function.
        function: that was called.
    """

    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(WireModel):
    """One message of the conversation.

    Attributes:
        role: who speaks; a developer is a system.
        content: a text, or parts.
        name: of the speaker.
        tool_calls: of an assistant.
        tool_call_id: the call that a tool answers.
        reasoning: of an assistant, before its content.
        reasoning_content: the same under its other name.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class FunctionDefinition(WireModel):
    """A function that the model may call.

    Attributes:
        name: of the function.
        description: for the model.
        parameters: JSON schema of its arguments.
        strict: arguments must obey the schema, token by token.
    """

    name: Annotated[str, Field(pattern=FUNCTION_NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(WireModel):
    """A tool.

    Attributes:
        type: always a function.
        function: that may be called.
    """

    type: Literal["function"]
    function: FunctionDefinition


class NamedFunction(WireModel):
    """Name of a function.

    Attributes:
        name: of the function.
    """

    name: str


class NamedToolChoice(WireModel):
    """This function must be called.

    Attributes:
        type: always a function.
        function: that must be called.
    """

    type: Literal["function"]
    function: NamedFunction


class ChatBody(GenerationFields):
    """A conversation to answer.

    Attributes:
        messages: the conversation.
        max_completion_tokens: most output tokens, reasoning included.
        max_tokens: the same under its former name; the other one counts when both are there.
        logprobs: report log probabilities of output tokens.
        top_logprobs: this many most likely tokens beside each.
        tools: functions that may be called.
        tool_choice: whether they may or must be.
        parallel_tool_calls: false allows one call an answer.
        chat_template_kwargs: names that the template reads.
        enable_thinking: the same as in `chat_template_kwargs`.
        reasoning_effort: `none` switches thinking off; others switch it on and are shown to the template.
        thinking_budget: most reasoning tokens.
        thinking_token_budget: the same under vLLM's name.
        include_reasoning: false leaves the reasoning out of the answer.
        add_generation_prompt: false leaves out the beginning of the answer.
        continue_final_message: the last message is an unfinished answer that goes on.
        documents: shown to the template.
    """

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: TokenCount | None = None
    max_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Integer, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    thinking_budget: TokenCount | None = None
    thinking_token_budget: TokenCount | None = None
    include_reasoning: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: list[dict[str, Any]] | None = None
