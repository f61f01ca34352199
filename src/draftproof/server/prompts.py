"""Texts and conversations as prompts of token ids, checked against the context."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from draftproof.server.context import ServerContext
from draftproof.server.errors import ApiError

T = TypeVar("T")
LONG_TEXT = 20_000
"""Characters from which on the work is done in a thread: other requests' chunks must not wait for it."""


async def off_the_loop(size: int, work: Callable[[], T]) -> T:
    """The result of `work`, which is done in a thread when it is much."""
    return await asyncio.to_thread(work) if size >= LONG_TEXT else work()


async def encode_text(context: ServerContext, text: str, with_special: bool) -> tuple[int, ...]:
    """Token ids of a text.

    Args:
        context: of the server.
        text: to encode.
        with_special: with what the tokenizer adds (a beginning-of-sequence token).
    """
    encode = context.tokenizer.encode if with_special else context.tokenizer.encode_rendered
    return tuple(await off_the_loop(len(text), lambda: encode(text)))


def check_token_ids(context: ServerContext, token_ids: Sequence[int], param: str) -> tuple[int, ...]:
    """Refuse ids that the model does not have."""
    size = context.client.ready.vocabulary_size
    for token_id in token_ids:
        if token_id >= size:
            raise ApiError(
                400, f"{param} names token {token_id}; the vocabulary ends at {size - 1}", param=param
            )
    return tuple(token_ids)


def check_length(context: ServerContext, prompt_tokens: int, max_tokens: int | None, param: str) -> None:
    """Refuse prompts that are empty or leave no room for their output.

    Raises:
        ApiError: 400 in OpenAI's words for it.
    """
    if prompt_tokens == 0:
        raise ApiError(400, f"{param} is empty: there is nothing to continue", param=param)
    longest = context.client.ready.max_length
    wanted = max_tokens or 1
    if prompt_tokens + wanted > longest:
        raise ApiError(
            400,
            f"this model's maximum context length is {longest} tokens, and the request needs "
            f"{prompt_tokens + wanted}: {prompt_tokens} tokens of {param} and {wanted} of the output. "
            "Shorten one of them.",
            param=param,
            code="context_length_exceeded",
        )
