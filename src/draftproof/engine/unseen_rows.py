"""Committed rows that a drafter has not seen yet: plain steps do not stop for it, and it catches up later."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_UNSEEN_ROWS = 32
"""Rows after which a drafter catches up although nobody wants drafts: as many at a time cost it little more
than one, and their hidden states take little memory."""


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

    def __len__(self) -> int:
        return sum(len(run.following) for run in self._runs)

    def add(self, run: SeenRun) -> None:
        """Rows that follow the ones that are there. Their hidden states are copied: what they are a part of
        may be large.

        Raises:
            ValueError: there is a hole before them.
        """
        if self._runs and self._runs[0].start + len(self) != run.start:
            raise ValueError(f"rows from {run.start} do not follow {self._runs[0].start + len(self)}")
        self._runs.append(SeenRun(run.start, run.hidden.clone(), run.following))

    def take(self, run: SeenRun) -> SeenRun:
        """All rows that are there and those of `run` after them; none are left."""
        self.add(run)
        runs, self._runs = self._runs, []
        return SeenRun(
            runs[0].start,
            torch.cat([each.hidden for each in runs]),
            tuple(token for each in runs for token in each.following),
        )
