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


class ResponsesUsage(Answer):
    """Tokens of a request."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class ResponsesAnswer(Answer):
    """A whole response."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["completed", "incomplete"]
    output: list[dict[str, Any]]
    usage: ResponsesUsage


class TokenizeAnswer(Answer):
    """Tokens of a text."""

    count: int
    max_model_len: int
    tokens: list[int]


class DetokenizeAnswer(Answer):
    """Text of tokens."""

    prompt: str


class ModelCard(Answer):
    """The served model under one of its names."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(Answer):
    """The served model under all of its names."""

    object: Literal["list"]
    data: list[ModelCard]


class HealthAnswer(Answer):
    """Whether requests are answered."""

    status: Literal["starting", "ready", "degraded", "draining", "failed"]
    reasons: list[str]


ERRORS: Responses = {"4XX": {"model": ErrorAnswer}, "5XX": {"model": ErrorAnswer}}
EVENTS: dict[str, Any] = {"text/event-stream": {}}
COMPLETION_RESPONSES: Responses = {200: {"model": CompletionAnswer, "content": EVENTS}, **ERRORS}
CHAT_RESPONSES: Responses = {200: {"model": ChatAnswer, "content": EVENTS}, **ERRORS}
RESPONSES_RESPONSES: Responses = {200: {"model": ResponsesAnswer, "content": EVENTS}, **ERRORS}
TOKENIZE_RESPONSES: Responses = {200: {"model": TokenizeAnswer}, **ERRORS}
DETOKENIZE_RESPONSES: Responses = {200: {"model": DetokenizeAnswer}, **ERRORS}
MODEL_RESPONSES: Responses = {200: {"model": ModelCard}, **ERRORS}
MODEL_LIST_RESPONSES: Responses = {200: {"model": ModelList}, **ERRORS}
HEALTH_RESPONSES: Responses = {200: {"model": HealthAnswer}, 503: {"model": HealthAnswer}, **ERRORS}
