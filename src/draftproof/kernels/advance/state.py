"""What the op reads and moves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

import torch
from torch import Tensor

MOST_ROWS = 8
"""Rows of the widest window."""


@dataclass(frozen=True)
class SlotProgress:
    """Where each slot's sequence stands. The host writes a slot when a sequence enters it; from then on only
    `advance` and the drafts do.

    Attributes:
        running: [slots] int32, 1 while output is wanted, 0 from its end on and in empty slots.
        lengths: [slots] int32, committed positions; the window's first row stands at this position.
        pending: [slots] int32, accepted rows of the stash that the recurrent state has not taken.
        parity: [slots] int32, side of the double-buffered pools that holds the newest window.
        inputs: [slots, 1 + most drafts] int32: the newest token, then the drafts after it.
        draft_counts: [slots] int32, how many of these drafts there are.
        remaining: [slots] int32, tokens that the output may still take, at least 1 while running.
        unstoppable: [slots] int32, output tokens that must precede a stop token yet; 0 or less for none.
    """

    running: Tensor
    lengths: Tensor
    pending: Tensor
    parity: Tensor
    inputs: Tensor
    draft_counts: Tensor
    remaining: Tensor
    unstoppable: Tensor

    @staticmethod
    def make(slots: int, most_drafts: int, device: torch.device) -> SlotProgress:
        """Empty slots."""

        def zeros() -> Tensor:
            return torch.zeros(slots, dtype=torch.int32, device=device)

        inputs = torch.zeros((slots, 1 + most_drafts), dtype=torch.int32, device=device)
        return SlotProgress(zeros(), zeros(), zeros(), zeros(), inputs, zeros(), zeros(), zeros())


@dataclass(frozen=True)
class SlotRules:
    """What a request fixes for its sequence.

    Attributes:
        draft_limit: [slots] int32, most drafts of a window.
        stop_tokens: [slots, places] int32, tokens that end the output, filled up with -1.
    """

    draft_limit: Tensor
    stop_tokens: Tensor

    @staticmethod
    def make(slots: int, most_stop_tokens: int, device: torch.device) -> SlotRules:
        """No drafts and no stop tokens."""
        return SlotRules(
            torch.zeros(slots, dtype=torch.int32, device=device),
            torch.full((slots, most_stop_tokens), -1, dtype=torch.int32, device=device),
        )


@dataclass(frozen=True)
class PassOutcome:
    """What the head's pass of the same step goes by; by place in the batch, or by slot as geometry is.

    Attributes:
        accepted: [batch] int32, accepted drafts: the row of the window that was committed last.
        window_lengths: [slots] int32, `lengths` as they were: where the window's first row stands.
        draft_lengths: [most drafts, slots] int32: `draft_lengths[i]` are the lengths for choosing draft i
            (the token of position draft_lengths[i][slot] + 1), and for the head's row that leads to draft
            i + 1, which stands at this position.
    """

    accepted: Tensor
    window_lengths: Tensor
    draft_lengths: Tensor

    @staticmethod
    def make(batch: int, slots: int, most_drafts: int, device: torch.device) -> PassOutcome:
        """Room for a pass."""
        return PassOutcome(
            torch.zeros(batch, dtype=torch.int32, device=device),
            torch.zeros(slots, dtype=torch.int32, device=device),
            torch.zeros((most_drafts, slots), dtype=torch.int32, device=device),
        )


class RecordField(IntEnum):
    """Columns of a record; tokens follow from `TOKENS` on."""

    STEP = 0
    """The step that wrote it."""
    SLOT = 1
    KEPT = 2
    """Tokens added to the output: the first ones of the record's. 0 for a sequence that was not running."""
    END = 3
    """`EndFlag` bits."""
    ACCEPTED = 4
    """Accepted drafts."""
    DRAFTS = 5
    """Drafts that were live in the window."""
    LENGTH = 6
    """Committed positions afterwards."""
    SPARE = 7
    TOKENS = 8


RECORD_WIDTH = RecordField.TOKENS + MOST_ROWS


class EndFlag(IntFlag):
    """Why a sequence stopped running."""

    NONE = 0
    STOP = 1
    LENGTH = 2
    FAULT = 4
    """Logits of a live row left no token to choose; nothing of the window was kept."""


@dataclass(frozen=True)
class EmittedRing:
    """What steps emitted, for the host.

    Attributes:
        step: [1] int32, number of the next step to write, counted by the device.
        records: [ring, batch, RECORD_WIDTH] int32 in memory that the host reads (pinned beside a GPU); step n
            writes the first batch records of entry n % ring.
    """

    step: Tensor
    records: Tensor


@dataclass(frozen=True)
class SimulatedAcceptance:
    """Acceptance as it is asked for, not as it is: for timing models whose weights mean nothing.

    Each window accepts floor(credit) drafts, where a slot's credit grows by the asked number for each window
    and shrinks by what is accepted: the mean over windows is the asked one exactly, and windows differ by at
    most one.

    Attributes:
        thousandths: accepted drafts per window, in thousandths.
        credit: [slots] int32, in thousandths.
    """

    thousandths: int
    credit: Tensor
