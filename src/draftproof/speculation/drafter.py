"""What proposes tokens for the target, and what it is told after every commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from draftproof.runtime.sampler import SequenceContext
from draftproof.runtime.sequence import Sequence

Drafts = tuple[tuple[int, ...], ...]
"""Proposed token ids of each sequence of a batch; a sequence may get fewer than wanted, or none."""


@dataclass(frozen=True)
class CommittedRows:
    """Rows that a step has just committed, for the sequences that go on.

    Attributes:
        sequences: the batch.
        contexts: their sampling contexts, emitted tokens included.
        starts: position of each sequence's first committed row.
        counts: committed rows of each sequence.
        hidden: [batch, rows, hidden] target output after the final norm; rows past a count have no meaning.
        next_token_ids: [batch, rows] int64 token that follows each committed row; 0 past a count.
        wanted: drafts that the next window has room for, 0 while a prompt goes on.
    """

    sequences: tuple[Sequence, ...]
    contexts: tuple[SequenceContext, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    hidden: Tensor
    next_token_ids: Tensor
    wanted: tuple[int, ...]


class Drafter(Protocol):
    """Proposes tokens. Its proposals can change the speed of generation, never the text."""

    name: str
    keeps_rows: bool
    """It has keys and values of its own, and needs to see every committed row for them."""

    def propose(self, rows: CommittedRows) -> Drafts:
        """Take note of the committed rows and propose at most `wanted` tokens for each sequence."""
        ...


class NoDrafter:
    """Plain decoding."""

    name = "none"
    keeps_rows = False

    def propose(self, rows: CommittedRows) -> Drafts:
        return ((),) * len(rows.sequences)
