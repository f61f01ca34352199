"""One request inside the engine process: its output as text, and what it has cost."""

from __future__ import annotations

from draftproof.engine.request import StepOutput
from draftproof.runtime.constraint import TokenConstraint
from draftproof.serving.messages import GenerationChunk, GenerationRequest, GenerationUsage
from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.text.output import OutputText


class RunningOutput:
    """Turns a request's step outputs into chunks.

    Args:
        request: whose output it is.
        text: fresh; the engine pushes the tokens into it, see `Request.watcher`.
        arrived: when the request came, in seconds of the worker's clock.
        constraint: what its tokens are limited by, if by anything.
    """

    def __init__(
        self,
        request: GenerationRequest,
        text: OutputText,
        arrived: float,
        constraint: TokenConstraint | None = None,
    ) -> None:
        self.request = request
        self._constraint = constraint
        self._text = text
        self._arrived = arrived
        self._started: float | None = None
        self._first_token: float | None = None
        self._completion_tokens = 0
        self._acceptance = AcceptanceCounts()
        self._histogram: list[int] = []

    @property
    def overdue_at(self) -> float | None:
        """When its time is over; None without a deadline."""
        seconds = self.request.deadline_seconds
        return None if seconds is None else self._arrived + seconds

    @property
    def failure(self) -> str | None:
        """Why its output is not what was asked for; None while it is."""
        return None if self._constraint is None else self._constraint.failure

    def start(self, now: float) -> None:
        """Its first prompt step begins; later calls change nothing."""
        if self._started is None:
            self._started = now

    def chunk(self, output: StepOutput, now: float) -> GenerationChunk:
        """What a step added to it."""
        if output.token_ids and self._first_token is None:
            self._first_token = now
        self._completion_tokens += len(output.token_ids)
        self._count(output.acceptance)
        if output.finish_reason is not None:
            self._text.finish()
        return GenerationChunk(
            request_id=output.request_id,
            text=self._text.take(),
            token_ids=output.token_ids,
            logprobs=output.logprobs,
            usage=self._usage(output.cached_tokens, now),
            finish_reason=output.finish_reason,
            matched_stop=self._text.matched_stop,
        )

    def _count(self, step: AcceptanceCounts) -> None:
        if not step.passes:
            return
        self._acceptance += step
        accepted = sum(step.accepted)
        self._histogram += [0] * (max(accepted, len(step.proposed)) + 1 - len(self._histogram))
        self._histogram[accepted] += 1

    def _usage(self, cached_tokens: int, now: float) -> GenerationUsage:
        started = now if self._started is None else self._started
        first_token = now if self._first_token is None else self._first_token
        return GenerationUsage(
            prompt_tokens=len(self.request.prompt_ids),
            cached_tokens=cached_tokens,
            completion_tokens=self._completion_tokens,
            acceptance=self._acceptance,
            histogram=tuple(self._histogram),
            queued_seconds=max(started - self._arrived, 0.0),
            prompt_seconds=max(first_token - started, 0.0),
        )
