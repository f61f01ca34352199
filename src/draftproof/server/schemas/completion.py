"""Body of `/v1/completions`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from draftproof.server.schemas.base import Integer
from draftproof.server.schemas.fields import GenerationFields, TokenCount, TokenId

DEFAULT_MAX_TOKENS = 16
"""OpenAI's."""

MOST_LOGPROBS = 20

Tokens = Annotated[list[TokenId], Field(min_length=1)]


class CompletionBody(GenerationFields):
    """A text, or several, to continue.

    Attributes:
        prompt: a text, texts, token ids, or lists of token ids.
        max_tokens: most output tokens.
        echo: the prompt's text comes before the output.
        logprobs: this many most likely tokens beside each output token.
        add_special_tokens: false adds no beginning-of-sequence token to a text.
    """

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1)]
        | Tokens
        | Annotated[list[Tokens], Field(min_length=1)]
    )
    max_tokens: TokenCount | None = None
    echo: bool | None = None
    logprobs: Annotated[Integer, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    add_special_tokens: bool | None = None
