"""What goes into an engine and what comes out, in token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from draftproof.runtime.constraint import TokenConstraint
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.acceptance import AcceptanceCounts, FinishReason


class RequestPhase(Enum):
    """How far an engine is with a request."""

    WAITING = "waiting"
    """No step has looked at it."""
    STARTED = "started"
    """Some of its prompt is computed, or being computed."""
    GONE = "gone"
    """Finished, aborted, lost to a fault, or never added."""


class TextWatcher(Protocol):
    """Looks at a request's tokens as text, to find stop strings."""

    def push(self, token_ids: Sequence[int]) -> int | None:
        """Take new tokens; the index of the one that completes a stop string, if one does."""
        ...


@dataclass(frozen=True)
class Request:
    """One prompt to continue.

    Attributes:
        request_id: unique among the engine's requests.
        prompt_ids: at least one token.
        parameters: how to sample and when to stop.
        draft_tokens: most drafts per window for this request; None for the engine's. 0 switches speculation
            off.
        watcher: finds stop strings; None without them.
        constraint: limits the tokens, fresh for this request; None when all are allowed.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    parameters: SamplingParameters
    draft_tokens: int | None = None
    watcher: TextWatcher | None = None
    constraint: TokenConstraint | None = None


@dataclass(frozen=True)
class TokenLogprob:
    """Log probability of one output token under the raw logits, with the most likely alternatives.

    Attributes:
        token_id: the token.
        logprob: natural logarithm of its probability.
        top: (token id, logprob), most likely first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class StepOutput:
    """What one step added to one request.

    Attributes:
        request_id: whose.
        token_ids: new output tokens; a stop token is the last of them.
        logprobs: one per new token when the request asked for them, else empty.
        finish_reason: None while it goes on.
        acceptance: what happened to the drafts of this step's window.
        cached_tokens: prompt tokens of the request whose state was kept from earlier ones.
    """

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason | None
    acceptance: AcceptanceCounts = field(default_factory=AcceptanceCounts)
    cached_tokens: int = 0


@dataclass(frozen=True)
class Completion:
    """A finished request.

    Attributes:
        request_id: whose.
        token_ids: all output tokens.
        logprobs: one per token when asked for, else empty.
        finish_reason: why it ended.
        acceptance: what happened to its drafts.
        cached_tokens: prompt tokens whose state was kept from earlier requests.
    """

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason
    acceptance: AcceptanceCounts = field(default_factory=AcceptanceCounts)
    cached_tokens: int = 0
