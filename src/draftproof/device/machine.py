"""Launches steps and reads what they emitted: the host's side of the step's program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from draftproof.device.buffers import ActivationBuffers
from draftproof.device.graphs import Recorder
from draftproof.device.program import StepProgram
from draftproof.device.shapes import StepShape, bucket_of, padded_slots
from draftproof.device.state import DeviceState
from draftproof.device.weights import DeviceModel
from draftproof.device.workspace import StepWorkspace, make_workspace
from draftproof.kernels.advance.state import (
    RECORD_WIDTH,
    EmittedRing,
    EndFlag,
    RecordField,
    SimulatedAcceptance,
)
from draftproof.kernels.row_sampling.slot_sampling import RowChoice, SamplingScratch
from draftproof.kernels.select import StepKernels

RING_STEPS = 8
"""Steps whose emitted tokens are kept: those in flight, and those that recording a graph runs for nothing."""


class StepPart(Enum):
    """What one launch carries out."""

    WHOLE = "whole"
    VERIFY = "verify"
    """Up to the logits: the host chooses the tokens."""
    CONCLUDE = "conclude"
    """From the tokens on."""


@dataclass(frozen=True)
class StepTicket:
    """A step that was launched.

    Attributes:
        number: the device counts steps too.
        slots: of its sequences, in order.
        done: when its records can be read; None where launching is running.
    """

    number: int
    slots: tuple[int, ...]
    done: torch.cuda.Event | None


@dataclass(frozen=True)
class StepRecord:
    """What a step did to one sequence.

    Attributes:
        slot: whose.
        tokens: added to its output.
        after_end: tokens after those that were accepted too: the state has taken all but the last of them in.
        end: why it stopped, if it did.
        drafts: live drafts of the window.
        accepted: how many of them were right.
        length: committed positions afterwards.
    """

    slot: int
    tokens: tuple[int, ...]
    after_end: tuple[int, ...]
    end: EndFlag
    drafts: int
    accepted: int
    length: int


@dataclass(frozen=True)
class _Form:
    """One program and the parts of it that have been made callable."""

    program: StepProgram
    workspace: StepWorkspace
    parts: dict[StepPart, Callable[[], None]]


class StepMachine:
    """Steps of every shape over one model and state.

    Args:
        kernels: one callable for each op.
        model: weights.
        state: of all sequences.
        largest: the largest step there will be.
        recorder: how calls are carried out.
        simulated_drafts: accepted drafts of a window, in thousandths, when acceptance is simulated; None
            outside of benchmarks.
    """

    def __init__(
        self,
        kernels: StepKernels,
        model: DeviceModel,
        state: DeviceState,
        largest: StepShape,
        recorder: Recorder,
        simulated_drafts: int | None = None,
    ) -> None:
        self.model = model
        self.state = state
        self.largest = StepShape(bucket_of(largest.batch), largest.draft_tokens)
        self._kernels = kernels
        self._recorder = recorder
        self._device = model.embedding.device
        self._buffers = ActivationBuffers.allocate(
            model.widths, self.largest.all_rows, model.embedding.dtype, self._device
        )
        self._ring = _make_ring(self.largest.batch, self._device)
        self._simulation = _simulation(simulated_drafts, state)
        self._forms: dict[tuple[StepShape, RowChoice], _Form] = {}
        self._scratch: dict[RowChoice, SamplingScratch] = {}
        self._written: dict[tuple[StepShape, RowChoice], tuple[int, ...]] = {}
        self._launched = 0

    def launch(self, slots: Sequence[int], draft_tokens: int, choice: RowChoice) -> StepTicket:
        """Run a whole step over the sequences in these slots.

        Args:
            slots: distinct, at most the largest batch.
            draft_tokens: K.
            choice: what their sampling needs.
        """
        self._prepared(slots, draft_tokens, choice, StepPart.WHOLE)()
        return self._ticket(slots)

    def verify(self, slots: Sequence[int], draft_tokens: int, choice: RowChoice) -> Tensor:
        """Run a step up to its logits, [sequences * rows, vocabulary] float32; `conclude` must follow."""
        self._prepared(slots, draft_tokens, choice, StepPart.VERIFY)()
        shape = StepShape(bucket_of(len(slots)), draft_tokens)
        return self._forms[shape, choice].workspace.logits[: len(slots) * shape.rows]

    def conclude(
        self, slots: Sequence[int], draft_tokens: int, choice: RowChoice, sampled: Tensor
    ) -> StepTicket:
        """Finish a verified step with the host's tokens.

        Args:
            slots, draft_tokens, choice: as they were given to `verify`.
            sampled: [sequences * rows] integers.
        """
        call = self._prepared(slots, draft_tokens, choice, StepPart.CONCLUDE)
        shape = StepShape(bucket_of(len(slots)), draft_tokens)
        self._forms[shape, choice].workspace.sampled[: len(sampled)] = sampled
        call()
        return self._ticket(slots)

    def collect(self, ticket: StepTicket) -> tuple[StepRecord, ...]:
        """What a step did, sequence by sequence; waits for it."""
        if ticket.done is not None:
            ticket.done.synchronize()
        records = self._ring.records[ticket.number % RING_STEPS, : len(ticket.slots)].tolist()
        return tuple(_record(fields) for fields in records)

    def _prepared(
        self, slots: Sequence[int], draft_tokens: int, choice: RowChoice, part: StepPart
    ) -> Callable[[], None]:
        key = StepShape(bucket_of(len(slots)), draft_tokens), choice
        form = self._forms.get(key) or self._make(*key)
        if part not in form.parts:
            form.parts[part] = self._record(form, part)
            self._written.pop(key, None)
        wanted = tuple(slots)
        if self._written.get(key) != wanted:
            padded = padded_slots(wanted, self.state.scrap_slot)
            # Ordinary memory is read before the call returns, so nothing waits for the steps in flight.
            form.workspace.slots.copy_(torch.tensor(padded, dtype=torch.int32), non_blocking=True)
            self._written[key] = wanted
        return form.parts[part]

    def _make(self, shape: StepShape, choice: RowChoice) -> _Form:
        workspace = make_workspace(
            shape, choice, self.model, self.state, self._buffers, self._sampling_scratch(choice)
        )
        program = StepProgram(self._kernels, self.model, self.state, workspace, self._ring, self._simulation)
        form = _Form(program, workspace, {})
        self._forms[shape, choice] = form
        return form

    def _sampling_scratch(self, choice: RowChoice) -> SamplingScratch:
        """One for all shapes: cuts need as much room as the logits."""
        if choice not in self._scratch:
            rows, columns = self.largest.all_rows, self.model.lm_head.rows
            self._scratch[choice] = SamplingScratch.make(rows, columns, choice, self._device)
        return self._scratch[choice]

    def _record(self, form: _Form, part: StepPart) -> Callable[[], None]:
        """Recording may run the calls: on the scrap slot they move nothing of value but the count of
        steps."""
        program = form.program
        form.workspace.slots.fill_(self.state.scrap_slot)
        calls = {
            StepPart.WHOLE: program.run,
            StepPart.VERIFY: program.verify,
            StepPart.CONCLUDE: program.conclude,
        }[part]
        call = self._recorder.record(calls)
        self._ring.step.fill_(self._launched)
        return call

    def _ticket(self, slots: Sequence[int]) -> StepTicket:
        done = None
        if self._device.type == "cuda":
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types here
            done.record()
        number = self._launched
        self._launched += 1
        return StepTicket(number, tuple(slots), done)


def _make_ring(batch: int, device: torch.device) -> EmittedRing:
    records = torch.zeros(
        RING_STEPS, batch, RECORD_WIDTH, dtype=torch.int32, pin_memory=device.type == "cuda"
    )
    return EmittedRing(torch.zeros(1, dtype=torch.int32, device=device), records)


def _simulation(drafts: int | None, state: DeviceState) -> SimulatedAcceptance | None:
    if drafts is None:
        return None
    return SimulatedAcceptance(drafts, torch.zeros_like(state.progress.running))


def _record(fields: list[int]) -> StepRecord:
    begin, kept = RecordField.TOKENS, fields[RecordField.KEPT]
    emitted = fields[begin : begin + fields[RecordField.ACCEPTED] + 1] if kept else []
    return StepRecord(
        slot=fields[RecordField.SLOT],
        tokens=tuple(emitted[:kept]),
        after_end=tuple(emitted[kept:]),
        end=EndFlag(fields[RecordField.END]),
        drafts=fields[RecordField.DRAFTS],
        accepted=fields[RecordField.ACCEPTED],
        length=fields[RecordField.LENGTH],
    )
