"""What an operator should look at: drafts that are never accepted any more, outputs that go round in circles,
requests lost to faults. Each alarm ends when its cause is gone. Needs no torch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from draftproof.engine.recent_acceptance import CollapseWindow, DraftingPass, RecentAcceptance
from draftproof.engine.repetition import RepetitionWatch
from draftproof.engine.status import Alarm, AlarmKind
from draftproof.speculation.acceptance import AcceptanceCounts

FAULT_SECONDS = 300.0
"""How long a fault is news."""

NAMED_REQUESTS = 8
"""Most requests that an alarm names."""


class AlarmWatch:
    """Is told what happens to requests, and says what is wrong.

    Args:
        clock: seconds that never go backward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.recent_acceptance = RecentAcceptance()
        self._clock = clock
        self._all_requests = CollapseWindow()
        self._by_request: dict[str, CollapseWindow] = {}
        self._repetition = RepetitionWatch()
        self._lost: deque[tuple[float, str]] = deque()

    def passed(self, request_id: str, acceptance: AcceptanceCounts) -> None:
        """A request's verify pass is over."""
        self.recent_acceptance.observe(acceptance)
        if not acceptance.proposed:
            return
        drafting = DraftingPass(request_id, sum(acceptance.proposed), sum(acceptance.accepted))
        self._all_requests.observe(drafting)
        self._by_request.setdefault(request_id, CollapseWindow()).observe(drafting)

    def wrote(self, request_id: str, output: Sequence[int]) -> None:
        """A request's output has grown."""
        self._repetition.look(request_id, output)

    def left(self, request_id: str) -> None:
        """A request ended, whatever the reason."""
        self._by_request.pop(request_id, None)
        self._repetition.forget(request_id)

    def lost(self, request_ids: Iterable[str]) -> None:
        """Requests ended because what was computed for them cannot be right."""
        for request_id in request_ids:
            self._lost.append((self._clock(), request_id))
            self.left(request_id)

    def alarms(self) -> tuple[Alarm, ...]:
        """What is wrong now."""
        found = (self._collapsed_acceptance(), self._repeating(), self._faulty())
        return tuple(alarm for alarm in found if alarm is not None)

    def _collapsed_acceptance(self) -> Alarm | None:
        everywhere, remedy = self._all_requests, "check the head: draftproof verify"
        if everywhere.collapsed:
            return Alarm(
                AlarmKind.COLLAPSED_ACCEPTANCE,
                f"{everywhere.accepted} of the last {everywhere.drafts} drafts were accepted "
                f"({everywhere.passes} passes): the accept length is pinned at 1.0; {remedy}",
                everywhere.request_ids[:NAMED_REQUESTS],
            )
        collapsed = [name for name, window in self._by_request.items() if window.collapsed]
        if not collapsed:
            return None
        return Alarm(
            AlarmKind.COLLAPSED_ACCEPTANCE,
            f"{_counted(len(collapsed), 'request')} with an accept length pinned at 1.0, while drafts of "
            f"others are accepted: read what was written; {remedy}",
            tuple(reversed(collapsed))[:NAMED_REQUESTS],
        )

    def _repeating(self) -> Alarm | None:
        periods = self._repetition.periods
        if not periods:
            return None
        latest = tuple(reversed(periods))
        return Alarm(
            AlarmKind.REPETITION,
            f"{_counted(len(periods), 'output')} in circles (of {_counted(periods[latest[0]], 'token')}): "
            "lower max_tokens, raise the temperature or use a presence penalty",
            latest[:NAMED_REQUESTS],
        )

    def _faulty(self) -> Alarm | None:
        oldest = self._clock() - FAULT_SECONDS
        while self._lost and self._lost[0][0] < oldest:
            self._lost.popleft()
        if not self._lost:
            return None
        return Alarm(
            AlarmKind.FAULTS,
            f"{_counted(len(self._lost), 'request')} lost to faults in the last {FAULT_SECONDS:.0f} seconds: "
            "see the log",
            tuple(name for _, name in reversed(self._lost))[:NAMED_REQUESTS],
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
