"""The engine's side of serving: commands in, steps, messages out. One failed request leaves the others be."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from draftproof.engine.request import Request, RequestPhase
from draftproof.engine.status import EngineStatus
from draftproof.errors import DraftproofError, EngineFault, UsageError
from draftproof.runtime.constraint import TokenConstraint
from draftproof.serving.factory import ServedEngine
from draftproof.serving.messages import (
    Abort,
    EngineMessage,
    FailureKind,
    GenerationFailure,
    GenerationRequest,
    PrefixCacheReset,
    ResetPrefixCache,
)
from draftproof.serving.running_output import RunningOutput
from draftproof.text.detokenizer import Detokenizer
from draftproof.text.output import OutputText
from draftproof.text.stop import StopStrings

MOST_FAILED_STEPS = 3
"""Steps in a row that may end with an exception nobody foresaw; after them the engine is given up."""

_LOG = logging.getLogger("draftproof.serving")


class EngineLost(DraftproofError):
    """The engine cannot go on."""

    exit_code = 70


class EngineWorker:
    """Carries out requests with one engine.

    Args:
        served: the engine and what belongs to it.
        clock: seconds that only go up.
    """

    def __init__(self, served: ServedEngine, clock: Callable[[], float]) -> None:
        self._served = served
        self._engine = served.engine
        self._clock = clock
        self._outputs: dict[str, RunningOutput] = {}
        # Insertion order is the order of arrival, in which the engine starts them.
        self._waiting: dict[str, RunningOutput] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._failed_steps = 0
        self._faults = 0

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return self._engine.has_work

    @property
    def status(self) -> EngineStatus:
        """Counters and levels."""
        return replace(self._engine.status(), faults=self._faults)

    def take(self, command: GenerationRequest | Abort | ResetPrefixCache) -> Iterator[EngineMessage]:
        """Carry out a command; what is to be answered at once.

        Raises:
            EngineLost: see `step`.
        """
        try:
            yield from self._carry_out(command)
        except EngineLost:
            raise
        except Exception as error:  # noqa: BLE001 - all requests are told, and the engine starts over
            _LOG.exception("the engine failed at %s", type(command).__name__)
            yield from self._start_over(error)

    def _carry_out(self, command: GenerationRequest | Abort | ResetPrefixCache) -> Iterator[EngineMessage]:
        if isinstance(command, Abort):
            self._engine.abort(command.request_id)
            self._forget(command.request_id)
        elif isinstance(command, ResetPrefixCache):
            self._engine.reset_prefix_cache()
            yield PrefixCacheReset()
        else:
            yield from self._add(command)

    def step(self) -> Iterator[EngineMessage]:
        """Run one step; what it means for requests.

        Raises:
            EngineLost: the engine is of no more use; every request has been answered before.
        """
        yield from self._end_overdue()
        began = self._clock()
        try:
            outputs = self._engine.step()
        except EngineFault as fault:
            yield from self._drop_lost(fault)
            return
        except Exception as error:  # noqa: BLE001 - all requests are told, and the engine starts over
            _LOG.exception("an engine step failed")
            yield from self._start_over(error)
            return
        self._failed_steps = 0
        self._note_started(began)
        now = self._clock()
        for output in outputs:
            running = self._outputs.get(output.request_id)
            if running is None:
                continue
            if output.finish_reason is not None:
                self._forget(output.request_id)
                if running.failure is not None:
                    yield GenerationFailure(output.request_id, FailureKind.REFUSED, running.failure)
                    continue
            yield running.chunk(output, now)

    def _add(self, request: GenerationRequest) -> Iterator[EngineMessage]:
        now = self._clock()
        try:
            text, constraint = self._text(request), self._constraint(request)
            self._engine.add(
                Request(
                    request_id=request.request_id,
                    prompt_ids=request.prompt_ids,
                    parameters=request.parameters,
                    draft_tokens=request.draft_tokens,
                    watcher=text,
                    constraint=constraint,
                )
            )
        except UsageError as error:
            yield GenerationFailure(request.request_id, FailureKind.REFUSED, str(error))
            return
        except Exception as error:  # noqa: BLE001 - its request is told; the others go on
            _LOG.exception("request %s could not be taken", request.request_id)
            yield GenerationFailure(request.request_id, FailureKind.FAULT, _unforeseen(error))
            return
        running = RunningOutput(request, text, now, constraint)
        self._outputs[request.request_id] = self._waiting[request.request_id] = running
        if running.overdue_at is not None:
            heapq.heappush(self._deadlines, (running.overdue_at, request.request_id))

    def _text(self, request: GenerationRequest) -> OutputText:
        tokenizer, parameters = self._served.tokenizer, request.parameters
        hidden = frozenset((*self._served.ready.end_token_ids, *parameters.stop_token_ids))
        if not request.shows_special_tokens:
            hidden |= tokenizer.special_ids
        return OutputText(
            Detokenizer(tokenizer, hidden), StopStrings(parameters.stop_strings, parameters.min_tokens)
        )

    def _constraint(self, request: GenerationRequest) -> TokenConstraint | None:
        return None if request.rules is None else self._served.constraints.constraint(request.rules)

    def _forget(self, request_id: str) -> None:
        self._outputs.pop(request_id, None)
        self._waiting.pop(request_id, None)

    def _note_started(self, began: float) -> None:
        """Requests whose first prompt step this was."""
        for request_id in tuple(self._waiting):
            if self._engine.phase(request_id) is RequestPhase.WAITING:
                return
            self._waiting.pop(request_id).start(began)

    def _end_overdue(self) -> Iterator[EngineMessage]:
        while self._deadlines and self._deadlines[0][0] <= self._clock():
            deadline, request_id = heapq.heappop(self._deadlines)
            running = self._outputs.get(request_id)
            if running is None or running.overdue_at != deadline:
                continue
            self._engine.abort(request_id)
            self._forget(request_id)
            seconds = running.request.deadline_seconds
            yield GenerationFailure(
                request_id, FailureKind.DEADLINE, f"the request was not finished after {seconds:g} seconds"
            )

    def _drop_lost(self, fault: EngineFault) -> Iterator[EngineMessage]:
        """Requests that the engine dropped with a fault; it goes on with the others."""
        lost = [name for name in self._outputs if self._engine.phase(name) is RequestPhase.GONE]
        if not lost:
            yield from self._start_over(fault)
            return
        _LOG.error("%s; lost: %s", fault.message, ", ".join(lost))
        yield from self._end_with_fault(lost, str(fault))

    def _start_over(self, error: Exception) -> Iterator[EngineMessage]:
        """After an exception that nobody foresaw nothing is trusted: all requests end, state is made anew."""
        self._failed_steps += 1
        yield from self._end_with_fault(list(self._outputs), _unforeseen(error))
        try:
            self._engine.reset()
            # Kept prompts may share what the failed step was writing.
            self._engine.reset_prefix_cache()
        except Exception as second:
            _LOG.exception("the engine could not be reset")
            raise EngineLost(f"the engine could not be put right after a failure: {second}") from second
        if self._failed_steps >= MOST_FAILED_STEPS:
            raise EngineLost(f"{self._failed_steps} engine steps in a row failed: {_unforeseen(error)}")

    def _end_with_fault(self, request_ids: list[str], message: str) -> Iterator[EngineMessage]:
        self._faults += len(request_ids)
        for request_id in request_ids:
            self._forget(request_id)
            yield GenerationFailure(request_id, FailureKind.FAULT, message)


def _unforeseen(error: Exception) -> str:
    """One line for a client; the traceback is in the log."""
    lines = str(error).splitlines()
    return f"the engine failed: {type(error).__name__}{': ' + lines[0] if lines else ''}"
