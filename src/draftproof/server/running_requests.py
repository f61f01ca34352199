"""The requests that are in flight now, and how many tokens a second they get together."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from draftproof.serving.messages import GenerationRequest, GenerationUsage

RATE_SECONDS = 5.0
"""Tokens of so many latest seconds make the rate."""


@dataclass
class RunningRequest:
    """One request from its arrival to its end. Times are the clock's of whoever fills this in.

    Attributes:
        request_id: its id.
        prompt_tokens: of its prompt.
        draft_tokens: most drafts that it asked for; None for the engine's choice.
        arrived_at: when it came.
        first_token_at: when its first tokens came.
        first_tokens: how many those were.
        last_token_at: when its latest tokens came.
        usage: of its latest chunk.
    """

    request_id: str
    prompt_tokens: int
    draft_tokens: int | None
    arrived_at: float
    first_token_at: float | None = None
    first_tokens: int = 0
    last_token_at: float | None = None
    usage: GenerationUsage | None = None


class RunningRequests:
    """What is in flight, oldest first."""

    def __init__(self) -> None:
        self._requests: dict[str, RunningRequest] = {}
        self._tokens: deque[tuple[float, int]] = deque()
        self._recent = 0

    def begin(self, request: GenerationRequest, now: float) -> RunningRequest:
        """A request came."""
        running = RunningRequest(request.request_id, len(request.prompt_ids), request.draft_tokens, now)
        self._requests[request.request_id] = running
        return running

    def end(self, request_id: str) -> None:
        """It is over, however it ended."""
        self._requests.pop(request_id, None)

    def count_tokens(self, tokens: int, now: float) -> None:
        """Output tokens came."""
        self._tokens.append((now, tokens))
        self._recent += tokens
        self._forget(now)

    def tokens_per_second(self, now: float) -> float:
        """Output tokens of all requests over the latest `RATE_SECONDS`, a second."""
        self._forget(now)
        return self._recent / RATE_SECONDS

    @property
    def all(self) -> tuple[RunningRequest, ...]:
        """Every request in flight, oldest first."""
        return tuple(self._requests.values())

    def _forget(self, now: float) -> None:
        while self._tokens and self._tokens[0][0] <= now - RATE_SECONDS:
            self._recent -= self._tokens.popleft()[1]
