"""The three verdicts and how several of them make one."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Verdict(Enum):
    """What is known about a claim. A verdict is never a guess: without evidence it is UNKNOWN."""

    PROVEN = "proven"
    """The claim was observed to be true."""
    DISPROVED = "disproved"
    """The claim was observed to be false."""
    UNKNOWN = "unknown"
    """The claim could not be observed; the evidence says why."""

    @property
    def exit_code(self) -> int:
        """Exit code of a command that ends with this verdict, the same in text and JSON mode."""
        return _EXIT_CODES[self]

    @property
    def word(self) -> str:
        """The verdict as printed: "PROVEN", "DISPROVED", "UNKNOWN"."""
        return self.value.upper()


_EXIT_CODES = {Verdict.PROVEN: 0, Verdict.DISPROVED: 1, Verdict.UNKNOWN: 3}


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of claims that must all hold.

    One disproved claim disproves them all; otherwise one unknown claim leaves them unknown. No claim at all
    is UNKNOWN: nothing was looked at.
    """
    seen = set(verdicts)
    if Verdict.DISPROVED in seen:
        return Verdict.DISPROVED
    if Verdict.UNKNOWN in seen or not seen:
        return Verdict.UNKNOWN
    return Verdict.PROVEN
