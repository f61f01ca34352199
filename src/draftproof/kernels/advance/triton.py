"""The op in Triton: one program for the whole batch, one vector lane for each sequence."""

from __future__ import annotations

import triton
from torch import Tensor

from draftproof.kernels.advance.state import (
    EmittedRing,
    PassOutcome,
    SimulatedAcceptance,
    SlotProgress,
    SlotRules,
)
from draftproof.kernels.advance.triton_kernels import advance_batch
from draftproof.kernels.dependent_launch import has_dependent_launch


def advance(
    sampled: Tensor,
    slots: Tensor,
    progress: SlotProgress,
    rules: SlotRules,
    outcome: PassOutcome,
    ring: EmittedRing,
    simulation: SimulatedAcceptance | None,
) -> None:
    """See `reference.advance`."""
    batch = slots.shape[0]
    early = has_dependent_launch(sampled)
    advance_batch[(1,)](
        sampled, slots, progress.running, progress.lengths, progress.pending, progress.parity,
        progress.inputs, progress.inputs.stride(0), progress.draft_counts, progress.remaining,
        progress.unstoppable, rules.draft_limit, rules.stop_tokens, rules.stop_tokens.shape[1],
        outcome.accepted, outcome.window_lengths, outcome.draft_lengths, outcome.draft_lengths.stride(0),
        ring.step, ring.records, ring.records.shape[0], ring.records.stride(0),
        sampled if simulation is None else simulation.credit,
        0 if simulation is None else simulation.thousandths,
        batch, T=sampled.shape[0] // batch, K=outcome.draft_lengths.shape[0],
        BATCH=max(triton.next_power_of_2(batch), 2), SIMULATED=simulation is not None,
        PDL=early, num_warps=1 if batch <= 4 else 4, launch_pdl=early,
    )  # fmt: skip
