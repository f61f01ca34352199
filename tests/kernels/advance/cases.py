"""Device state for some slots before a pass, as tests of its end want it."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field

import torch
from torch import Tensor

from draftproof.kernels.advance.state import (
    RECORD_WIDTH,
    EmittedRing,
    PassOutcome,
    SimulatedAcceptance,
    SlotProgress,
    SlotRules,
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MOST_DRAFTS = 4


@dataclass(frozen=True)
class Slot:
    """One slot before a pass, and the tokens that the target draws at its rows."""

    sampled: list[int]
    drafts: list[int]
    running: bool = True
    length: int = 10
    parity: int = 0
    remaining: int = 100
    unstoppable: int = 0
    draft_limit: int = MOST_DRAFTS
    stops: list[int] = field(default_factory=list)


@dataclass
class Machine:
    """Device state for some slots, in the order of a batch that runs them backwards."""

    cases: list[Slot]
    rows: int
    chained: int
    simulation: SimulatedAcceptance | None = None

    def __post_init__(self) -> None:
        slots = len(self.cases)
        self.progress = SlotProgress.make(slots, MOST_DRAFTS, DEVICE)
        self.rules = SlotRules.make(slots, 3, DEVICE)
        self.outcome = PassOutcome.make(slots, slots, self.chained, DEVICE)
        records = torch.full((2, slots, RECORD_WIDTH), -77, dtype=torch.int32, device=DEVICE)
        self.ring = EmittedRing(torch.tensor([5], dtype=torch.int32, device=DEVICE), records)
        self.slots = torch.arange(slots - 1, -1, -1, dtype=torch.int32, device=DEVICE)
        self.sampled = numbers([token for case in reversed(self.cases) for token in case.sampled])
        for slot, case in enumerate(self.cases):
            self.progress.running[slot] = int(case.running)
            self.progress.lengths[slot] = case.length
            self.progress.parity[slot] = case.parity
            self.progress.pending[slot] = 1
            self.progress.inputs[slot] = 55
            self.progress.inputs[slot, 1 : 1 + len(case.drafts)] = numbers(case.drafts)
            self.progress.draft_counts[slot] = len(case.drafts)
            self.progress.remaining[slot] = case.remaining
            self.progress.unstoppable[slot] = case.unstoppable
            self.rules.draft_limit[slot] = case.draft_limit
            self.rules.stop_tokens[slot, : len(case.stops)] = numbers(case.stops)

    def advance(self, backend: object) -> None:
        backend.advance(  # type: ignore[attr-defined]
            self.sampled, self.slots, self.progress, self.rules, self.outcome, self.ring, self.simulation
        )

    def state(self) -> list[Tensor]:
        parts = (*astuple(self.progress), *astuple(self.outcome), *astuple(self.ring), self.sampled)
        return [part.cpu() for part in parts]

    def record(self, slot: int) -> list[int]:
        entry = int(self.ring.step - 1) % 2
        found: list[int] = self.ring.records[entry, len(self.cases) - 1 - slot].tolist()
        return found


def numbers(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)
