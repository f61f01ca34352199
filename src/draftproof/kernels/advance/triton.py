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
from draftproof.kernels.advance.triton_kernels import advance_batch, sample_and_advance_batch
from draftproof.kernels.dependent_launch import has_dependent_launch
from draftproof.kernels.row_sampling.slot_sampling import RowChoice, SamplingScratch, SlotSampling
from draftproof.kernels.row_sampling.triton import MARGIN, WARPS, block_of, sample_rows
from draftproof.kernels.step_geometry import StepGeometry


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
        *_arguments(sampled, slots, progress, rules, outcome, ring, simulation),
        T=sampled.shape[0] // batch, **_sizes(batch, rules, outcome), SIMULATED=simulation is not None,
        PDL=early, num_warps=1 if batch <= 4 else 4, launch_pdl=early,
    )  # fmt: skip


def sample_and_advance(
    logits: Tensor,
    geometry: StepGeometry,
    sampling: SlotSampling,
    choice: RowChoice,
    scratch: SamplingScratch,
    sampled: Tensor,
    progress: SlotProgress,
    rules: SlotRules,
    outcome: PassOutcome,
    ring: EmittedRing,
    simulation: SimulatedAcceptance | None,
) -> None:
    """See `reference.sample_and_advance`."""
    if choice is RowChoice.TRUNCATED:
        sample_rows(logits, geometry, sampling, choice, scratch, sampled)
        advance(sampled, geometry.slots, progress, rules, outcome, ring, simulation)
        return
    block = block_of(choice)
    blocks = triton.cdiv(logits.shape[1], block)
    early = has_dependent_launch(logits)
    sample_and_advance_batch[(blocks, logits.shape[0])](
        logits, logits.stride(0), sampling.temperature, sampling.seeds,
        scratch.partial, scratch.partial.stride(0), scratch.places, scratch.arrivals, logits.shape[1], blocks,
        *_arguments(sampled, geometry.slots, progress, rules, outcome, ring, simulation),
        DRAWN=choice is RowChoice.DRAWN, MARGIN=MARGIN, BLOCK=block, BLOCKS=triton.next_power_of_2(blocks),
        T=geometry.rows, **_sizes(geometry.batch, rules, outcome), SIMULATED=simulation is not None,
        PDL=early, num_warps=WARPS, launch_pdl=early,
    )  # fmt: skip


def _arguments(
    sampled: Tensor,
    slots: Tensor,
    progress: SlotProgress,
    rules: SlotRules,
    outcome: PassOutcome,
    ring: EmittedRing,
    simulation: SimulatedAcceptance | None,
) -> tuple[Tensor | int, ...]:
    """Of `advance_sequences`, in its order."""
    return (
        sampled, slots, progress.running, progress.lengths, progress.pending, progress.parity,
        progress.inputs, progress.inputs.stride(0), progress.draft_counts, progress.remaining,
        progress.unstoppable, rules.draft_limit, rules.stop_tokens,
        outcome.accepted, outcome.window_lengths, outcome.draft_lengths, outcome.draft_lengths.stride(0),
        ring.step, ring.records, ring.records.shape[0], ring.records.stride(0),
        sampled if simulation is None else simulation.credit,
        0 if simulation is None else simulation.thousandths,
        slots.shape[0],
    )  # fmt: skip


def _sizes(batch: int, rules: SlotRules, outcome: PassOutcome) -> dict[str, int]:
    """Numbers that the kernel is compiled for."""
    stops = rules.stop_tokens.shape[1]
    return {
        "K": outcome.draft_lengths.shape[0],
        "BATCH": _lanes(batch),
        "STOPS": stops,
        "STOP_LANES": _lanes(stops),
    }


def _lanes(count: int) -> int:
    """Vector lanes for so many numbers."""
    return max(int(triton.next_power_of_2(count)), 2)
