"""Finds outputs that go round in circles: the same tokens again and again, to the token limit."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_PERIOD = 64
"""Longest circle that is looked for, in tokens."""

UNIT = 20
REPEATS = 10
"""A circle counts when at least `UNIT` tokens come `REPEATS` times: a list, a table or a line of dashes does
not reach that."""

TOKENS_BETWEEN_LOOKS = 50
"""How much longer an output is when it is looked at again."""


def repeated_period(tokens: Sequence[int]) -> int | None:
    """Length of the shortest circle that the end of an output is made of; None when it is made of none.

    Args:
        tokens: of the output so far.
    """
    for period in range(1, LONGEST_PERIOD + 1):
        span = REPEATS * max(period, UNIT)
        if len(tokens) < span:
            return None
        tail = tokens[-span:]
        if tail[-1] == tail[-1 - period] and tail[period:] == tail[:-period]:
            return period
    return None


class RepetitionWatch:
    """Looks at running outputs now and then."""

    def __init__(self) -> None:
        self._looked_at: dict[str, int] = {}
        self._periods: dict[str, int] = {}

    def look(self, request_id: str, output: Sequence[int]) -> None:
        """Take note of an output that may have grown."""
        if len(output) - self._looked_at.get(request_id, 0) < TOKENS_BETWEEN_LOOKS:
            return
        self._looked_at[request_id] = len(output)
        period = repeated_period(output)
        # In order of discovery, so that the latest is known.
        self._periods.pop(request_id, None)
        if period is not None:
            self._periods[request_id] = period

    def forget(self, request_id: str) -> None:
        """A request left."""
        self._looked_at.pop(request_id, None)
        self._periods.pop(request_id, None)

    @property
    def periods(self) -> dict[str, int]:
        """Tokens of the circle, by the id of each request that goes round in one now; the latest seen is the
        last."""
        return dict(self._periods)
