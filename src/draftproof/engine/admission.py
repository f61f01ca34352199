"""What an engine checks and derives before it takes a request."""

from __future__ import annotations

from draftproof.architecture.spec import ModelSpec
from draftproof.engine.request import Request
from draftproof.errors import UsageError
from draftproof.speculation.acceptance import OutputEnd


def draft_limit(request: Request, engine_limit: int) -> int:
    """Most drafts per window for a request.

    Raises:
        UsageError: its own limit is negative.
    """
    if request.draft_tokens is None:
        return engine_limit
    if request.draft_tokens < 0:
        raise UsageError(
            f"draft_tokens is {request.draft_tokens}; allowed: 0 (no speculation) or a positive number"
        )
    return min(request.draft_tokens, engine_limit)


def output_limit(request: Request, spec: ModelSpec, max_length: int) -> int:
    """Most tokens that a request may generate.

    Raises:
        UsageError: its prompt is empty, holds a token that cannot be, or leaves no room in the context.
    """
    if not request.prompt_ids:
        raise UsageError("the prompt has no tokens", "Give at least one character of text.")
    vocabulary = spec.vocab_size
    outside = [token for token in request.prompt_ids if not 0 <= token < vocabulary]
    if outside:
        raise UsageError(f"token id {outside[0]} is outside the vocabulary of {vocabulary}")
    images = set(request.prompt_ids) & set(spec.image_token_ids)
    if images:
        raise UsageError(
            f"the prompt holds image token {min(images)}",
            "This engine serves text; send the request without images.",
        )
    room = max_length - len(request.prompt_ids)
    if room < 1:
        raise UsageError(
            f"the prompt has {len(request.prompt_ids)} tokens, but the context holds {max_length} "
            "with the output",
            "Shorten the prompt or raise --max-length.",
        )
    wanted = request.parameters.max_tokens
    return room if wanted is None else min(wanted, room)


def output_end(request: Request, spec: ModelSpec, limit: int) -> OutputEnd:
    """When a request's output ends; `limit` is its `output_limit`."""
    parameters = request.parameters
    end_ids = () if parameters.ignore_eos else spec.end_token_ids
    return OutputEnd(frozenset((*end_ids, *parameters.stop_token_ids)), limit, parameters.min_tokens)
