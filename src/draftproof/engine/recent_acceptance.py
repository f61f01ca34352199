"""What happened to drafts lately, and whether any are accepted at all. Needs no torch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from draftproof.speculation.acceptance import AcceptanceCounts

BLOCK = 100
BLOCKS = 10
"""The latest passes are `BLOCKS` blocks of `BLOCK`; the oldest block leaves as a whole."""

COLLAPSED_PASSES = 200
COLLAPSED_DRAFTS = 2000
"""Passes with drafts, or drafts, after which acceptance can be said to have collapsed."""

PINNED_LENGTH = 1.01
"""An accept length up to here is 1.0 for whoever reads a dashboard; no head that works gets near it."""


class RecentAcceptance:
    """Counts of the latest passes: at least 900 and at most 1,000 once there were so many."""

    def __init__(self) -> None:
        self._full: deque[AcceptanceCounts] = deque(maxlen=BLOCKS - 1)
        self._open = AcceptanceCounts()

    def observe(self, counts: AcceptanceCounts) -> None:
        """Take note of passes."""
        self._open += counts
        if self._open.passes >= BLOCK:
            self._full.append(self._open)
            self._open = AcceptanceCounts()

    @property
    def counts(self) -> AcceptanceCounts:
        """Of the latest passes."""
        return sum(self._full, start=self._open)


@dataclass(frozen=True)
class DraftingPass:
    """One request's pass that had drafts."""

    request_id: str
    drafts: int
    accepted: int


class CollapseWindow:
    """The latest passes with drafts: as few of them as can show that acceptance has collapsed."""

    def __init__(self) -> None:
        self._passes: deque[DraftingPass] = deque()
        self.drafts = 0
        self.accepted = 0

    def observe(self, passed: DraftingPass) -> None:
        """Take note of a pass."""
        self._passes.append(passed)
        self.drafts += passed.drafts
        self.accepted += passed.accepted
        while self._is_enough(len(self._passes) - 1, self.drafts - self._passes[0].drafts):
            oldest = self._passes.popleft()
            self.drafts -= oldest.drafts
            self.accepted -= oldest.accepted

    @property
    def passes(self) -> int:
        """In the window."""
        return len(self._passes)

    @property
    def collapsed(self) -> bool:
        """Whether the accept length is pinned at 1.0."""
        enough = self._is_enough(self.passes, self.drafts)
        return enough and 1.0 + self.accepted / self.passes <= PINNED_LENGTH

    @property
    def request_ids(self) -> tuple[str, ...]:
        """Whose passes they are, the latest first."""
        return tuple(dict.fromkeys(passed.request_id for passed in reversed(self._passes)))

    @staticmethod
    def _is_enough(passes: int, drafts: int) -> bool:
        return passes >= COLLAPSED_PASSES or drafts >= COLLAPSED_DRAFTS
