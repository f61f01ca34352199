"""Bodies of `/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from draftproof.server.schemas.base import WireModel
from draftproof.server.schemas.chat import ChatMessage, Tool
from draftproof.server.schemas.fields import TokenId


class TokenizeBody(WireModel):
    """A text or a conversation, one of them.

    Attributes:
        model: a served name.
        prompt: the text.
        messages: the conversation, which the chat template renders.
        add_special_tokens: with a beginning-of-sequence token; true for a text, false for a conversation.
        return_token_strs: tokens as texts, too.
        tools: shown to the template.
        add_generation_prompt: with the beginning of the answer.
        chat_template_kwargs: names that the template reads.
    """

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    tools: list[Tool] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeBody(WireModel):
    """Token ids to show as text.

    Attributes:
        model: a served name.
        tokens: the ids.
    """

    model: str | None = None
    tokens: list[TokenId]
