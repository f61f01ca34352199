"""Engines whose steps are device programs, over tiny checkpoints, wired as a test wants them.

On a CPU every op is its definition, which rounds to the dtype of the activations: in float32 the texts are
those of `engine.Engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Tokens
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import torch
from torch import Tensor

from draftproof.device.graphs import Recorder, recorder_for
from draftproof.device.machine import StepMachine
from draftproof.device.shapes import StepShape
from draftproof.device.state import DeviceState
from draftproof.device.weights import device_model
from draftproof.engine.device_engine import DeviceEngine
from draftproof.engine.scheduling import scheduler_for
from draftproof.kernels.gated_delta_decode.state import DeviceRecurrentState
from draftproof.kernels.select import kernels_for
from draftproof.kernels.step_geometry import StepGeometry
from draftproof.models.loading import LoadedModel
from draftproof.models.stored_linear import DenseBackend
from draftproof.models.weight_storage import WeightStorage
from draftproof.runtime.state_store import StateSizes
from draftproof.speculation.draft_choice import DraftChoice, FixedChoice
from tests.support.engines import CPU, Settings, load


def load_packed(folder: Path, *, dtype: torch.dtype = torch.float32, with_head: bool = True) -> LoadedModel:
    """Load a checkpoint with the blocks that device steps read."""
    return load(
        folder,
        dtype=dtype,
        storage=WeightStorage.PACKED,
        backend=DenseBackend.PACKED_BLOCKS,
        with_head=with_head,
    )


class ScriptedDrafts:
    """In place of the op `sample_drafts`: how many drafts of each window are right is a matter of choice.

    Args:
        references: the tokens that plain decoding gave each request.
        vocabulary: a wrong draft is the right token plus one.
        accepted: in turn, per request: right drafts of a window, the others are wrong; None for all right.
    """

    def __init__(
        self, references: Mapping[str, Tokens[int]], vocabulary: int, accepted: Tokens[int | None]
    ) -> None:
        self.engine: DeviceEngine | None = None
        self._references = references
        self._vocabulary = vocabulary
        self._turns = {name: cycle(accepted) for name in references}
        self._right: dict[str, int | None] = {}

    def __call__(
        self,
        logits: Tensor,
        geometry: StepGeometry,
        sampling: object,
        choice: object,
        scratch: object,
        token_ids: object,
        inputs: Tensor,
        place: int,
    ) -> None:
        assert self.engine is not None
        owners = {running.sequence.slot: running.sequence for running in self.engine._running.values()}
        for slot in geometry.slots.tolist():
            owner = owners.get(slot)
            if owner is None:
                continue
            name = owner.request_id
            if place == 1:
                self._right[name] = next(self._turns[name])
            index = int(geometry.lengths[slot]) + 1 - len(owner.prompt)
            reference = self._references[name]
            token = reference[index] if 0 <= index < len(reference) else 0
            right = self._right[name]
            wrong = right is not None and place > right
            inputs[slot, place] = (token + 1) % self._vocabulary if wrong else token


class CountingRecorder:
    """Runs the calls while it records them, as recorders on a GPU do."""

    def __init__(self) -> None:
        self.recorded = 0

    def record(self, calls: Callable[[], None]) -> Callable[[], None]:
        self.recorded += 1
        calls()
        calls()
        return calls


def make_device_engine(
    model: LoadedModel,
    settings: Settings,
    device: torch.device = CPU,
    recorder: Recorder | None = None,
    drafts: ScriptedDrafts | None = None,
    choice: DraftChoice | None = None,
) -> DeviceEngine:
    """An engine over a poisoned state, with the model's head when there are to be drafts."""
    rows = settings.draft_tokens + 1
    positions = settings.max_length + 2 * rows
    pages = settings.pages or settings.slots * -(-positions // settings.page_size) + 1
    sizes = StateSizes(settings.slots, pages, settings.page_size, positions, rows, settings.snapshots)
    state = DeviceState.allocate(model.target.spec, sizes, model.target.embedding.dtype, device)
    poison(state)
    head = model.head if settings.draft_tokens else None
    kernels = kernels_for(device)
    machine = StepMachine(
        kernels if drafts is None else replace(kernels, sample_drafts=drafts),
        device_model(model.target, head),
        state,
        StepShape(settings.slots, settings.draft_tokens),
        recorder or recorder_for(device),
    )
    scheduler = scheduler_for(sizes, settings.prompt_chunk, 2 * rows)
    engine = DeviceEngine(
        model.target,
        head,
        machine,
        scheduler,
        settings.draft_tokens,
        choice or FixedChoice(settings.draft_tokens),
        settings.max_length,
    )
    if drafts is not None:
        drafts.engine = engine
    return engine


def poison(state: DeviceState) -> None:
    """NaN in recurrent states and stashes, large numbers in the pages of keys and values."""
    for layer in (*state.trunk, *state.head):
        for pool in vars(layer).values():
            pool.fill_(float("nan") if isinstance(layer, DeviceRecurrentState) else 1000.0)
