"""Bodies of answers, for OpenAPI alone: answers are made as plain objects, without pydantic's time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Responses = dict[int | str, dict[str, Any]]


class Answer(BaseModel):
    """An object that may have further fields."""

    model_config = ConfigDict(extra="allow")


class ErrorDetail(Answer):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(Answer):
    """OpenAI's shape of an error."""

    error: ErrorDetail


class Usage(Answer):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class GeneratedAnswer(Answer):
    """What both endpoints answer with."""

    id: str
    created: int
    model: str
    usage: Usage


class CompletionItem(Answer):
    """One choice."""

    index: int
    text: str
    finish_reason: Literal["stop", "length"] | None


class CompletionAnswer(GeneratedAnswer):
    """A whole completion."""

    object: Literal["text_completion"]
    choices: list[CompletionItem]


class AnswerMessage(Answer):
    """The assistant's message."""

    role: Literal["assistant"]
    content: str | None
    reasoning: str | None = None


class ChatItem(Answer):
    """One choice."""

    index: int
    message: AnswerMessage
    finish_reason: Literal["stop", "length", "tool_calls"] | None


class ChatAnswer(GeneratedAnswer):
    """A whole answer in a chat."""

    object: Literal["chat.completion"]
    choices: list[ChatItem]


class TokenizeAnswer(Answer):
    """Tokens of a text."""

    count: int
    max_model_len: int
    tokens: list[int]


class DetokenizeAnswer(Answer):
    """Text of tokens."""

    prompt: str


def _responses(model: type[Answer], *statuses: int, is_streamed: bool = False) -> Responses:
    """The model for 200, and OpenAI's error for the statuses."""
    good: dict[str, Any] = {"model": model}
    if is_streamed:
        good["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    found: Responses = {200: good}
    return found | {status: {"model": ErrorAnswer} for status in statuses}


READING = (400, 401, 404, 408, 413, 415, 500)
GENERATING = (429, 503, 504)
COMPLETION_RESPONSES = _responses(CompletionAnswer, *READING, *GENERATING, is_streamed=True)
CHAT_RESPONSES = _responses(ChatAnswer, *READING, *GENERATING, is_streamed=True)
TOKENIZE_RESPONSES = _responses(TokenizeAnswer, *READING)
DETOKENIZE_RESPONSES = _responses(DetokenizeAnswer, *READING)
