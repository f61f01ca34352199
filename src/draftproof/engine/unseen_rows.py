"""Committed rows that a drafter has not seen yet: plain steps do not stop for it, and it catches up later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

MOST_UNSEEN_ROWS = 128
"""Rows after which a drafter catches up although nobody wants drafts: as many at a time cost it a fraction of
what they cost one by one, and their hidden states take little memory."""


@dataclass(frozen=True)
class SeenRun:
    """Rows of one sequence that follow each other.

    Attributes:
        start: position of the first.
        hidden: [rows, hidden] target output after the final norm.
        following: token after each row.
    """

    start: int
    hidden: Tensor
    following: tuple[int, ...]


class UnseenRows:
    """Of one sequence, in order."""

    def __init__(self) -> None:
        self._runs: list[SeenRun] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, run: SeenRun) -> None:
        """Rows that follow the ones that are there.

        Raises:
            ValueError: there is a hole before them.
        """
        if self._runs:
            newest = self._runs[-1]
            if newest.start + len(newest.following) != run.start:
                raise ValueError(
                    f"rows from {run.start} do not follow {newest.start + len(newest.following)}"
                )
            # It stays for longer than its step, and is a part of all that the step computed.
            self._runs[-1] = SeenRun(newest.start, newest.hidden.clone(), newest.following)
        self._runs.append(run)
        self._count += len(run.following)

    def take(self) -> SeenRun:
        """All rows, of which there is at least one; none are left."""
        runs, self._runs, self._count = self._runs, [], 0
        if len(runs) == 1:
            return runs[0]
        return SeenRun(
            runs[0].start,
            torch.cat([run.hidden for run in runs]),
            tuple(token for run in runs for token in run.following),
        )

    def clear(self) -> None:
        """Forget them: the sequence begins anew."""
        self._runs.clear()
        self._count = 0


@dataclass(frozen=True)
class ShownRows:
    """Rows of a batch as a drafter takes them.

    Attributes:
        starts: position of each sequence's first row.
        counts: rows of each sequence.
        hidden: [batch, rows, hidden], zero past a count.
        following: [batch][rows] token after each row, 0 past a count.
    """

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    hidden: Tensor
    following: list[list[int]]


def shown_rows(runs: Sequence[SeenRun]) -> ShownRows:
    """Rows of several sequences side by side."""
    counts = tuple(len(run.following) for run in runs)
    width = max(counts)
    return ShownRows(
        tuple(run.start for run in runs),
        counts,
        pad_sequence([run.hidden for run in runs], batch_first=True),
        [[*run.following, *(0,) * (width - len(run.following))] for run in runs],
    )
