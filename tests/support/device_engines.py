"""Engines whose steps are device programs, over tiny checkpoints, wired as a test wants them.

On a CPU every op is its definition, which rounds to the dtype of the activations: in float32 the texts are
those of `engine.Engine`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from draftproof.device.graphs import Recorder, recorder_for
from draftproof.device.machine import StepMachine
from draftproof.device.shapes import StepShape
from draftproof.device.state import DeviceState
from draftproof.device.weights import device_model
from draftproof.engine.device_engine import DeviceEngine
from draftproof.kernels.gated_delta_decode.state import DeviceRecurrentState
from draftproof.kernels.select import kernels_for
from draftproof.models.loading import LoadedModel
from draftproof.models.stored_linear import DenseBackend, WeightStorage
from draftproof.runtime.pages import PageAllocator
from draftproof.runtime.scheduler import Scheduler
from draftproof.runtime.slots import SlotAllocator
from draftproof.runtime.state_store import StateSizes
from tests.support.engines import CPU, Settings, load


def load_packed(
    folder: Path, *, dtype: torch.dtype = torch.float32, with_head: bool = True
) -> LoadedModel:
    """Load a checkpoint with the blocks that device steps read."""
    return load(
        folder,
        dtype=dtype,
        storage=WeightStorage.PACKED,
        backend=DenseBackend.PACKED_BLOCKS,
        with_head=with_head,
    )


def make_device_engine(
    model: LoadedModel,
    settings: Settings,
    device: torch.device = CPU,
    recorder: Recorder | None = None,
) -> DeviceEngine:
    """An engine over a poisoned state, with the model's head when there are to be drafts."""
    rows = settings.draft_tokens + 1
    positions = settings.max_length + 2 * rows
    pages = settings.pages or settings.slots * -(-positions // settings.page_size) + 1
    sizes = StateSizes(settings.slots, pages, settings.page_size, positions, rows)
    state = DeviceState.allocate(model.target.spec, sizes, model.target.embedding.dtype, device)
    poison(state)
    head = model.head if settings.draft_tokens else None
    machine = StepMachine(
        kernels_for(device),
        device_model(model.target, head),
        state,
        StepShape(settings.slots, settings.draft_tokens),
        recorder or recorder_for(device),
    )
    scheduler = Scheduler(
        PageAllocator(pages, settings.page_size),
        SlotAllocator(settings.slots),
        settings.prompt_chunk,
        2 * rows,
    )
    return DeviceEngine(
        model.target, head, machine, scheduler, settings.draft_tokens, settings.max_length
    )


def poison(state: DeviceState) -> None:
    """NaN in recurrent states and stashes, large numbers in the pages of keys and values."""
    for layer in (*state.trunk, *state.head):
        for pool in vars(layer).values():
            pool.fill_(float("nan") if isinstance(layer, DeviceRecurrentState) else 1000.0)


def at_most(settings: Settings, draft_tokens: int) -> Settings:
    """The same settings with another K."""
    return replace(settings, draft_tokens=draft_tokens)
