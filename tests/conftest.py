"""Fixtures that several test folders share. Torch is imported by those that need it, never by this file."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Before anything imports torch or huggingface_hub: one thread a process (tests run side by side), no network.
for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}.items():
    os.environ.setdefault(_name, _value)

# Millions of syntax nodes stay for the session: a collector that looks at the young ones after every 700 new
# objects, as is Python's default, takes a fifth of the time. The command line pauses it for the same reason.
gc.set_threshold(20_000, 10, 10)

if TYPE_CHECKING:
    from draftproof.stacks.stack import Stack
    from tests.support.checkpoint_options import CheckpointOptions
    from tests.support.checkpoints import WrittenCheckpoint
    from tests.support.hub_server import HubServer

CONFIGS = Path(__file__).parent / "data" / "configs"


@pytest.fixture(scope="session")
def checkpoint(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[CheckpointOptions], WrittenCheckpoint]:
    """Writes a checkpoint on the first request for its options and returns the same one afterwards.

    The files are shared by the session and refuse the faults: damage `faults.copy_of(written.folder, ...)`.
    """
    from tests.support.checkpoints import write_checkpoint
    from tests.support.faults import protect

    written: dict[CheckpointOptions, WrittenCheckpoint] = {}

    def get(options: CheckpointOptions) -> WrittenCheckpoint:
        if options not in written:
            folder = tmp_path_factory.mktemp("checkpoint", numbered=True)
            written[options] = write_checkpoint(folder, options)
            protect(folder)
        return written[options]

    return get


@pytest.fixture(scope="session")
def dense_checkpoint(checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint]) -> WrittenCheckpoint:
    """Nested dense Qwen3.5 in BF16 with vision tower, MTP head and tokenizer, one file."""
    from tests.support.checkpoint_options import CheckpointOptions

    return checkpoint(CheckpointOptions(tokenizer=True))


@pytest.fixture(scope="session")
def moe_checkpoint(checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint]) -> WrittenCheckpoint:
    """Nested MoE Qwen3.5 in BF16: trunk experts fused, MTP experts one by one, three shards and an index."""
    from tests.support.checkpoint_options import CheckpointOptions

    return checkpoint(CheckpointOptions(moe=True, shards=3, tokenizer=True))


@pytest.fixture(scope="session")
def nvfp4_checkpoint(checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint]) -> WrittenCheckpoint:
    """The flagship's layout in small: ModelOpt NVFP4 routed experts, everything else and the head in BF16."""
    from tests.support.checkpoint_options import CheckpointOptions
    from tests.support.checkpoint_precision import NVFP4_ROUTED

    return checkpoint(CheckpointOptions(moe=True, precision=NVFP4_ROUTED, shards=3, tokenizer=True))


@pytest.fixture(scope="session")
def public_config() -> Callable[[str], dict[str, Any]]:
    """Reads a public config by its file name without ".json"; the note on its provenance is taken out."""

    def read(name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
        content.pop("_provenance", None)
        return content

    return read


@pytest.fixture(scope="session")
def real_stack() -> Callable[[str, str], Stack]:
    """The real source of a released SGLang or vLLM: `real_stack("sglang", "0.5.12")`."""
    from tests.support import real_stacks

    return real_stacks.real_stack


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """An empty local hub that huggingface_hub talks to for this test, with an empty cache and no token.

    The environment says the same, for processes that the test starts.
    """
    from huggingface_hub import constants

    from tests.support.hub_server import HubServer

    cache = tmp_path / "hub-cache"
    with HubServer() as server:
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("HF_HUB_CACHE", str(cache))
        monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            server.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        yield server


@pytest.fixture
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fills uninitialised floating tensors with NaN (`tests.support.poison`)."""
    from tests.support.poison import poison_uninitialised_memory

    poison_uninitialised_memory(monkeypatch)
