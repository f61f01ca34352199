"""How many requests may wait, and when one that is turned away should come again."""

from __future__ import annotations

import math

LONGEST_RETRY_SECONDS = 60
_SHARE_OF_NEWEST = 0.2


class QueueLimit:
    """Decides about one more request.

    Args:
        running: sequences that the engine runs at a time.
        waiting: requests that may wait besides.
    """

    def __init__(self, running: int, waiting: int) -> None:
        self.waiting = waiting
        self.most = running + waiting
        self._seconds = 1.0

    def has_room(self, in_engine: int) -> bool:
        """Whether one more may come to so many."""
        return in_engine < self.most

    def note_finished(self, seconds: float) -> None:
        """A request took so long, from its arrival to its end."""
        self._seconds += _SHARE_OF_NEWEST * (seconds - self._seconds)

    def retry_after(self) -> int:
        """Whole seconds until half of those that wait will have been served.

        When all places are taken, requests leave at a rate of `most` per mean stay (Little's law).
        """
        ahead = max(self.waiting / 2, 1)
        return min(max(math.ceil(self._seconds * ahead / self.most), 1), LONGEST_RETRY_SECONDS)
