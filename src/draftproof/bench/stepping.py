"""Steps of synthetic sequences, timed as an engine runs them: a step is launched before the last is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch

from draftproof.bench.place import Place
from draftproof.bench.subject import PAGE_SIZE, Subject
from draftproof.device.machine import StepMachine, StepTicket
from draftproof.device.state import DeviceState, SequenceRules
from draftproof.errors import EngineFault
from draftproof.kernels.advance.state import EndFlag
from draftproof.kernels.row_sampling.slot_sampling import RowChoice
from draftproof.layers.window import KeyValueCache
from draftproof.runtime.sampling import SamplingParameters

WARM_UP_STEPS = 3
ENDLESS = 1 << 30
"""Output tokens that no measurement reaches."""


@dataclass(frozen=True)
class StepSample:
    """One run of steps.

    Attributes:
        seconds: of all steps, by the host's clock, from the first launch to the last token read.
        device_seconds: the same between two events on the device.
        steps: how many.
        tokens: of all sequences.
        passes: windows of all sequences.
    """

    seconds: float
    device_seconds: float
    steps: int
    tokens: int
    passes: int

    @property
    def tokens_per_second(self) -> float:
        """Of all sequences together."""
        return self.tokens / self.seconds

    @property
    def accept_length(self) -> float:
        """Tokens per verify pass."""
        return self.tokens / self.passes


def fill_state(subject: Subject, seed: int = 1) -> None:
    """Random keys, values and states in place of a prompt's: their values do not change a step's time, but
    zeros and NaN might."""
    state = subject.state
    with torch.inference_mode():
        for layer in (*state.trunk, *state.head):
            if isinstance(layer, KeyValueCache):
                for pool in (layer.keys, layer.values):
                    pool.normal_(generator=torch.Generator(pool.device).manual_seed(seed))
            else:
                pool = layer.recurrent
                pool.normal_(0.0, 0.02, generator=torch.Generator(pool.device).manual_seed(seed))


def place_sequences(state: DeviceState, sequences: int, draft_tokens: int, vocabulary: int) -> None:
    """Give the first slots to sequences that never end."""
    pages = state.sizes.max_positions // PAGE_SIZE
    with torch.inference_mode():
        for slot in range(sequences):
            rules = SequenceRules(
                newest=(7919 * slot + 11) % vocabulary,
                max_tokens=ENDLESS,
                min_tokens=0,
                draft_limit=draft_tokens,
                stop_token_ids=(),
                parameters=SamplingParameters(temperature=0.0),
            )
            state.open_slot(slot, range(1 + slot * pages, 1 + (slot + 1) * pages), rules)


def rewind(state: DeviceState, sequences: int, context: int, draft_tokens: int) -> None:
    """Put the first slots back to the same context."""
    with torch.inference_mode():
        state.progress.lengths[:sequences] = context
        state.progress.remaining[:sequences] = ENDLESS
        state.progress.pending[:sequences] = 0
        state.progress.draft_counts[:sequences] = draft_tokens
        state.rules.draft_limit[:sequences] = draft_tokens


def sample_steps(
    place: Place, machine: StepMachine, sequences: int, draft_tokens: int, steps: int
) -> StepSample:
    """Time steps over the first `sequences` slots.

    Raises:
        EngineFault: a step's logits left no token to choose.
    """
    slots = range(sequences)
    for _ in range(WARM_UP_STEPS):
        machine.collect(_launch(machine, slots, draft_tokens))
    place.synchronize()
    tokens = 0
    before = perf_counter()
    clock = place.clock()
    last = _launch(machine, slots, draft_tokens)
    for _ in range(steps - 1):
        ticket = _launch(machine, slots, draft_tokens)
        tokens += _count(machine, last)
        last = ticket
    clock.stop()
    tokens += _count(machine, last)
    seconds = perf_counter() - before
    return StepSample(seconds, clock.seconds(), steps, tokens, steps * sequences)


def _launch(machine: StepMachine, slots: Sequence[int], draft_tokens: int) -> StepTicket:
    return machine.launch(slots, draft_tokens, RowChoice.LARGEST)


def _count(machine: StepMachine, ticket: StepTicket) -> int:
    records = machine.collect(ticket)
    for record in records:
        if record.end & EndFlag.FAULT:
            raise EngineFault(
                f"a step's logits of sequence {record.slot} are not numbers: a kernel is wrong on this GPU"
            )
    return sum(len(record.tokens) for record in records)
