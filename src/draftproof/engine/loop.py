"""What every engine offers, whatever carries its steps out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace

from draftproof.engine.admission import RunningRequest
from draftproof.engine.alarms import AlarmWatch
from draftproof.engine.counters import EngineCounters, status_of
from draftproof.engine.request import Completion, Request, RequestPhase, StepOutput, TokenLogprob
from draftproof.engine.status import EngineStatus
from draftproof.errors import UsageError
from draftproof.models.qwen3_5 import Qwen35Model
from draftproof.runtime.scheduler import Scheduler
from draftproof.speculation.acceptance import AcceptanceCounts, FinishReason
from draftproof.speculation.draft_choice import DraftChoice


class EngineLoop(ABC):
    """Requests in, tokens out, step by step.

    Attributes:
        model: the target.
        drafter_name: what proposes tokens.
        max_length: longest prompt and output together.
        acceptance: what happened to all drafts so far.
        choice: decides how many drafts a window gets.
        alarms: is told what happens, and says what is wrong.
    """

    model: Qwen35Model
    drafter_name: str
    max_length: int
    acceptance: AcceptanceCounts
    choice: DraftChoice
    alarms: AlarmWatch
    _scheduler: Scheduler
    _counters: EngineCounters
    _held: list[StepOutput]
    """Outputs that a fault in the same step kept from being reported; the next step does."""

    @abstractmethod
    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            UsageError: its id is taken, its prompt is empty or leaves no room, a token id is out of range,
                its draft limit is negative, or it needs more pages than there are.
        """

    @abstractmethod
    def abort(self, request_id: str) -> None:
        """Drop a request, waiting or running; unknown ids are ignored, for it may just have finished."""

    @abstractmethod
    def step(self) -> tuple[StepOutput, ...]:
        """Run one step; what was added to requests.

        Raises:
            EngineFault: the model gave logits that mean nothing. Requests that it touches are dropped; the
                engine goes on with the others.
        """

    @property
    @abstractmethod
    def has_work(self) -> bool:
        """Whether a step would do anything."""

    @abstractmethod
    def reset(self) -> None:
        """Drop all requests and whatever an exception in the middle of a step has left behind.

        Raises:
            Exception: it cannot be put right, see `check_integrity`; this engine is of no more use.
        """

    def check_integrity(self) -> None:
        """Nothing is lost or held twice; with no request, everything is free or kept for prompts to come."""
        self._scheduler.check_integrity()

    def status(self) -> EngineStatus:
        """Counters since the start and levels now."""
        status = status_of(self._scheduler, self._counters, self.acceptance)
        return replace(
            status,
            recent_acceptance=self.alarms.recent_acceptance.counts,
            arms=self.choice.arms(),
            alarms=self.alarms.alarms(),
        )

    def reset_prefix_cache(self) -> None:
        """Forget the state of all prompts; requests that run go on with what they share."""
        self._scheduler.reset_prefix()

    def phase(self, request_id: str) -> RequestPhase:
        """How far a request is; one that finished beside a fault is not gone before its last output is
        reported."""
        try:
            sequence = self._find(request_id).sequence
        except KeyError:
            is_held = any(output.request_id == request_id for output in self._held)
            return RequestPhase.STARTED if is_held else RequestPhase.GONE
        # A sequence that was preempted waits without a slot, but has output or committed rows behind it.
        started = sequence.slot >= 0 or sequence.committed > 0 or bool(sequence.output)
        return RequestPhase.STARTED if started else RequestPhase.WAITING

    @abstractmethod
    def _find(self, request_id: str) -> RunningRequest:
        """A request that was added and is not finished; KeyError when there is none."""

    def run(self, requests: Iterable[Request]) -> tuple[Completion, ...]:
        """Run requests to their end; completions in the order of the requests.

        Raises:
            UsageError: one of them is refused, see `add`; none of them stays queued.
        """
        order: list[str] = []
        for request in requests:
            try:
                self.add(request)
            except UsageError:
                for request_id in order:
                    self.abort(request_id)
                raise
            order.append(request.request_id)
        running = {request_id: self._find(request_id) for request_id in order}
        tokens: dict[str, list[int]] = {request_id: [] for request_id in running}
        logprobs: dict[str, list[TokenLogprob]] = {request_id: [] for request_id in running}
        reasons: dict[str, FinishReason] = {}
        while len(reasons) < len(running):
            for output in self.step():
                if output.request_id not in running:
                    continue
                tokens[output.request_id].extend(output.token_ids)
                logprobs[output.request_id].extend(output.logprobs)
                if output.finish_reason is not None:
                    reasons[output.request_id] = output.finish_reason
        return tuple(
            Completion(
                name,
                tuple(tokens[name]),
                tuple(logprobs[name]),
                reasons[name],
                running[name].acceptance,
                running[name].sequence.cached_tokens or 0,
            )
            for name in order
        )
