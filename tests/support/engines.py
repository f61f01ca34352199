"""Engines over tiny checkpoints, wired as a test wants them.

    model = load(written.folder)
    engine = make_engine(model, nextn, Settings(draft_tokens=3))

Whatever a sequence has not written itself is poisoned in the new engine's state: NaN in recurrent states and
stashes, large numbers in the pages of keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.engine import Engine
from draftproof.engine.request import Completion, Request
from draftproof.engine.scheduling import scheduler_for
from draftproof.kernels.gated_delta_step.reference import RecurrentState
from draftproof.models.account import TensorAccount
from draftproof.models.loading import LoadedModel, load_model
from draftproof.models.stored_linear import DenseBackend, LoadTarget
from draftproof.models.weight_storage import WeightStorage
from draftproof.runtime.state_store import StateSizes, StateStore
from draftproof.speculation.draft_choice import DraftChoice, FixedChoice
from draftproof.speculation.drafter import Drafter, NoDrafter
from draftproof.speculation.nextn import NextnDrafter
from draftproof.speculation.scripted import Script, ScriptedDrafter

CPU = torch.device("cpu")
POSITIONS = 640
"""Rotary tables of loaded models reach this far."""

DrafterMaker = Callable[[LoadedModel, StateStore], Drafter]


@dataclass(frozen=True)
class Settings:
    """How an engine of a test runs; pages are enough for every slot at full length unless given."""

    draft_tokens: int = 0
    slots: int = 4
    page_size: int = 16
    prompt_chunk: int = 256
    max_length: int = 160
    pages: int | None = None
    snapshots: int = 0


def load(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    storage: WeightStorage = WeightStorage.DENSE,
    backend: DenseBackend = DenseBackend.TORCH,
    with_head: bool = True,
) -> LoadedModel:
    """Load a checkpoint from a folder, MTP head included."""
    opened = open_checkpoint(str(folder))
    account = TensorAccount(folder, opened.inventory.tensors, CPU)
    target = LoadTarget(dtype, storage, backend)
    with torch.inference_mode():
        return load_model(spec_from_config(opened.config), account, target, POSITIONS, CPU, with_head)


def plain(model: LoadedModel, store: StateStore) -> Drafter:
    """No drafts."""
    return NoDrafter()


def nextn(model: LoadedModel, store: StateStore) -> Drafter:
    """Drafts of the model's own head."""
    assert model.head is not None
    return NextnDrafter(model.head, store)


def scripted(script: Script) -> DrafterMaker:
    """Drafts of a script."""
    return lambda model, store: ScriptedDrafter(script)


def make_store(model: LoadedModel, settings: Settings, dtype: torch.dtype = torch.float32) -> StateStore:
    """A poisoned state store."""
    window_rows = settings.draft_tokens + 1
    positions = settings.max_length + window_rows
    pages = settings.pages or settings.slots * -(-positions // settings.page_size) + 1
    sizes = StateSizes(settings.slots, pages, settings.page_size, positions, window_rows, settings.snapshots)
    store = StateStore(model.target.spec, sizes, dtype, CPU)
    for state in (*store.trunk, *store.head_caches):
        for pool in vars(state).values():
            if not isinstance(pool, torch.Tensor):
                continue
            # Masked scores are multiplied by what lies in a page, so a page may hold any number but no NaN.
            pool.fill_(float("nan") if isinstance(state, RecurrentState) else 1000.0)
    return store


def make_engine(
    model: LoadedModel,
    drafter: DrafterMaker = plain,
    settings: Settings | None = None,
    choice: DraftChoice | None = None,
) -> Engine:
    """An engine over a poisoned state; as many drafts as there may be, unless `choice` says otherwise."""
    settings = settings or Settings()
    store = make_store(model, settings, model.target.embedding.dtype)
    scheduler = scheduler_for(store.sizes, settings.prompt_chunk, store.sizes.window_rows)
    return Engine(
        model.target,
        store,
        scheduler,
        drafter(model, store),
        settings.draft_tokens,
        choice or FixedChoice(settings.draft_tokens),
        settings.max_length,
        CPU,
    )


def run_alone(
    model: LoadedModel, requests: Iterable[Request], settings: Settings | None = None
) -> list[Completion]:
    """Each request in an engine of its own, without speculation: what every other way must equal."""
    return [make_engine(model, plain, settings).run([request])[0] for request in requests]


def random_prompt(length: int, seed: int, vocabulary: int = 290) -> tuple[int, ...]:
    """Token ids below the special ones of generated checkpoints."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, vocabulary, (length,), generator=generator).tolist())


def texts(completions: Sequence[Completion]) -> dict[str, tuple[int, ...]]:
    """Output tokens by request id."""
    return {completion.request_id: completion.token_ids for completion in completions}
