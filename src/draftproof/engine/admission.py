"""What an engine checks and derives before it takes a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from draftproof.architecture.spec import ModelSpec
from draftproof.engine.request import Request
from draftproof.engine.unseen_rows import UnseenRows
from draftproof.errors import UsageError
from draftproof.runtime.sampler import SequenceContext
from draftproof.runtime.sequence import Sequence
from draftproof.speculation.acceptance import AcceptanceCounts, OutputEnd


@dataclass(eq=False)
class RunningRequest:
    """A request inside an engine.

    Attributes:
        request: what was asked for.
        sequence: its tokens, and where its state is.
        context: how its tokens are chosen.
        end: what ends its output.
        draft_tokens: most drafts of a window.
        acceptance: what became of its drafts.
        unseen: rows that its drafter is to catch up with.
    """

    request: Request
    sequence: Sequence
    context: SequenceContext
    end: OutputEnd
    draft_tokens: int
    acceptance: AcceptanceCounts = field(default_factory=AcceptanceCounts)
    unseen: UnseenRows = field(default_factory=UnseenRows)


Running = TypeVar("Running", bound=RunningRequest)


def admitted(
    kind: type[Running],
    request: Request,
    spec: ModelSpec,
    max_length: int,
    most_drafts: int,
    held_back: int = 0,
) -> Running:
    """A request that an engine takes, as `kind`.

    Args:
        kind: what the engine keeps of a request.
        request: that came.
        spec: the model.
        max_length: longest prompt and output together.
        most_drafts: of the engine's windows.
        held_back: prompt tokens that are left to the first decode step.

    Raises:
        UsageError: its prompt or its own draft limit cannot be, see `output_limit` and `draft_limit`.
    """
    limit = output_limit(request, spec, max_length)
    return kind(
        request=request,
        sequence=Sequence(request.request_id, request.prompt_ids, limit, held_back=held_back),
        context=SequenceContext(
            request.parameters, request.prompt_ids, spec.end_token_ids, spec.vocab_size, request.constraint
        ),
        end=output_end(request, spec, limit),
        draft_tokens=draft_limit(request, most_drafts),
    )


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
