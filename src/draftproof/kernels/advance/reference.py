"""Plain torch definition, one sequence at a time."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftproof.kernels.advance.state import (
    EmittedRing,
    EndFlag,
    PassOutcome,
    RecordField,
    SimulatedAcceptance,
    SlotProgress,
    SlotRules,
)
from draftproof.kernels.row_sampling.reference import sample_rows
from draftproof.kernels.row_sampling.slot_sampling import NO_TOKEN, RowChoice, SamplingScratch, SlotSampling
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
    """Finish a target's pass.

    A draft is accepted while it equals the token that was sampled at its row. A running sequence emits its
    accepted drafts and the sampled token after them, as far as its output goes; `lengths` move by
    accepted + 1, the sides of the pools change, the rows become pending if the window is wider than one row
    (one row is committed at once), the newest token becomes the first input, and `draft_counts` says how many
    of the drafts that this step is going to make (one for each row of `outcome.draft_lengths`) are of use;
    the drafts themselves come later in the step. A sequence that is not running, or whose live rows have a
    fault, stays as it is, with no accepted draft.

    Args:
        sampled: [batch * rows] int32, the target's own tokens. With a simulation, accepted drafts take their
            place.
        slots: [batch] int32. Places of the batch may share a slot that does not run (padding).
        progress: moved.
        rules: of the slots.
        outcome: written.
        ring: the step's entry is written, the count of steps goes up.
        simulation: decides instead of equality; None outside of benchmarks.
    """
    batch = slots.shape[0]
    rows = sampled.shape[0] // batch
    step = int(ring.step)
    for place, slot in enumerate(slots.tolist()):
        tokens = sampled[place * rows : (place + 1) * rows]
        window = _window_of(progress, tokens, slot)
        length = int(progress.lengths[slot])
        taken = _take(window, progress, rules, slot, simulation)
        if taken.moves:
            if simulation is not None:
                simulation.credit[slot] = min(_credit(simulation, slot) - 1000 * taken.accepted, 999)
                tokens[: taken.accepted] = window.drafts[: taken.accepted]
            drafts = min(int(rules.draft_limit[slot]), outcome.draft_lengths.shape[0])
            _move(progress, slot, taken, rows, tokens[taken.accepted], drafts)
        outcome.window_lengths[slot] = length
        outcome.accepted[place] = taken.accepted
        for draft, lengths in enumerate(outcome.draft_lengths):
            lengths[slot] = length + taken.accepted + 1 + draft
        entry = ring.records[step % ring.records.shape[0], place]
        moved = int(progress.lengths[slot])
        fields = [step, slot, taken.kept, taken.end.value, taken.accepted, window.live, moved, 0]
        entry[: RecordField.TOKENS] = entry.new_tensor(fields)
        entry[RecordField.TOKENS : RecordField.TOKENS + rows] = tokens
    ring.step.add_(1)


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
    """`sample_rows` into `sampled`, then `advance` by it: one op where nobody comes between them.

    Args:
        logits, geometry, sampling, choice, scratch: as `sample_rows` takes them; `geometry.lengths` are those
            of `progress`.
        sampled: [batch * rows] int32, written.
        progress, rules, outcome, ring, simulation: as `advance` takes them.
    """
    sample_rows(logits, geometry, sampling, choice, scratch, sampled)
    advance(sampled, geometry.slots, progress, rules, outcome, ring, simulation)


@dataclass(frozen=True)
class _Window:
    """One sequence's tokens; the first `live` of its drafts count."""

    running: bool
    live: int
    drafts: Tensor
    sampled: tuple[int, ...]

    @property
    def faulty(self) -> bool:
        return NO_TOKEN in self.sampled[: self.live + 1]


@dataclass(frozen=True)
class _Taken:
    accepted: int = 0
    kept: int = 0
    end: EndFlag = EndFlag.NONE
    moves: bool = False


def _window_of(progress: SlotProgress, sampled: Tensor, slot: int) -> _Window:
    rows = sampled.shape[0]
    live = min(int(progress.draft_counts[slot]), rows - 1)
    running = bool(progress.running[slot])
    drafts = progress.inputs[slot, 1:rows].clone()
    return _Window(running, live if running else 0, drafts, tuple(sampled.tolist()))


def _take(
    window: _Window,
    progress: SlotProgress,
    rules: SlotRules,
    slot: int,
    simulation: SimulatedAcceptance | None,
) -> _Taken:
    """What of a window counts, and whether it ends the output."""
    if not window.running:
        return _Taken()
    drafts = window.drafts.tolist()
    accepted = 0
    if window.faulty:
        emitted: tuple[int, ...] = (NO_TOKEN,)
    elif simulation is None:
        while accepted < window.live and drafts[accepted] == window.sampled[accepted]:
            accepted += 1
        emitted = window.sampled[: accepted + 1]
    else:
        accepted = min(_credit(simulation, slot) // 1000, window.live)
        emitted = (*drafts[:accepted], window.sampled[accepted])
    if NO_TOKEN in emitted:
        progress.running[slot] = 0
        return _Taken(end=EndFlag.FAULT)
    stops = set(rules.stop_tokens[slot].tolist()) - {-1}
    remaining, unstoppable = int(progress.remaining[slot]), int(progress.unstoppable[slot])
    for index, token in enumerate(emitted):
        if token in stops and index >= unstoppable:
            return _Taken(accepted, index + 1, EndFlag.STOP, moves=True)
        if index + 1 == remaining:
            return _Taken(accepted, index + 1, EndFlag.LENGTH, moves=True)
    return _Taken(accepted, accepted + 1, moves=True)


def _credit(simulation: SimulatedAcceptance, slot: int) -> int:
    """Thousandths of drafts that a window may accept; what it leaves is kept only below one draft."""
    return int(simulation.credit[slot]) + simulation.thousandths


def _move(
    progress: SlotProgress, slot: int, taken: _Taken, rows: int, newest: Tensor, most_drafts: int
) -> None:
    remaining = int(progress.remaining[slot]) - taken.kept
    progress.running[slot] = int(not taken.end)
    progress.lengths[slot] += taken.accepted + 1
    progress.pending[slot] = taken.accepted + 1 if rows > 1 else 0
    progress.parity[slot] ^= 1
    progress.inputs[slot, 0] = newest
    progress.draft_counts[slot] = max(min(most_drafts, remaining - 1), 0)
    progress.remaining[slot] = remaining
    progress.unstoppable[slot] -= taken.kept
