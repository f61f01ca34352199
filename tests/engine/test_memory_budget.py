"""Pages are as many as fit beside weights, slots and kept prompts, and enough for the longest sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
import torch

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.bench.precisions import layout_named
from draftproof.bench.shapes import load_shape
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.device.state import DeviceState
from draftproof.engine import build
from draftproof.engine.build import state_sizes
from draftproof.engine.config import DrafterName, EngineConfig
from draftproof.engine.memory_budget import plan_of, room_on, sizes_that_fit
from draftproof.errors import EnvironmentProblem
from draftproof.hardware.weights import weigh_precisions
from draftproof.kernels.gated_delta_decode.state import DeviceRecurrentState
from draftproof.layers.window import KeyValueCache
from draftproof.runtime.state_store import StateSizes

SPEC = load_shape("qwen3.5-35b-a3b")
WEIGHTS = weigh_precisions(SPEC, layout_named("nvfp4").groups)
PER_SEQUENCE = 2049
WANTED = StateSizes(8, 8 * PER_SEQUENCE + 1, 16, 32_776, 4, snapshots=32)
TOTAL = plan_of(SPEC, WEIGHTS, WANTED).total


def test_all_pages_when_they_fit() -> None:
    assert sizes_that_fit(SPEC, WEIGHTS, WANTED, int(TOTAL) + 1) == WANTED


@pytest.mark.parametrize("share", [0.999, 0.97, 0.9])
def test_as_many_as_fit(share: float) -> None:
    free = int(share * TOTAL)
    sizes = sizes_that_fit(SPEC, WEIGHTS, WANTED, free)
    assert sizes == replace(WANTED, pages=sizes.pages)
    assert plan_of(SPEC, WEIGHTS, sizes).total <= free
    assert plan_of(SPEC, WEIGHTS, replace(sizes, pages=sizes.pages + 2)).total > free


def test_never_fewer_than_one_sequence_at_its_longest_needs() -> None:
    sizes = sizes_that_fit(SPEC, WEIGHTS, WANTED, 1)
    assert sizes.pages == PER_SEQUENCE + 1
    assert plan_of(SPEC, WEIGHTS, sizes).total > 1


def test_kept_prompts_take_a_state_each() -> None:
    without = plan_of(SPEC, WEIGHTS, replace(WANTED, snapshots=0))
    # 63 MB of float32 state.
    assert TOTAL - without.total == pytest.approx(32 * 64e6, rel=0.05)


def test_a_share_bounds_what_may_be_taken_and_other_programs_may_leave_less() -> None:
    assert room_on(free=900, total=1000, share=None) == 900
    assert room_on(free=900, total=1000, share=0.5) == 500
    assert room_on(free=300, total=1000, share=0.5) == 300


def test_a_gpu_with_too_small_a_share_is_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint = open_checkpoint("tiny")
    spec = spec_from_config(checkpoint.config)
    sizes = state_sizes(EngineConfig(device="cuda", max_sequences=2), max_length=64)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 << 30, 100 << 30))
    for share, room in ((None, 80 << 30), (0.5, 50 << 30), (0.9, 80 << 30)):
        config = EngineConfig(device="cuda", memory_share=share)
        assert build._room(torch.device("cuda"), config) == room
    assert build._sizes_that_fit(checkpoint, spec, sizes, 50 << 30) == sizes
    with pytest.raises(EnvironmentProblem, match=r"may take 1\.0 GB.*raise --gpu-memory-utilization"):
        build._sizes_that_fit(checkpoint, spec, sizes, 1_000_000_000)


@pytest.mark.parametrize("snapshots", [0, 5])
@pytest.mark.parametrize("draft_tokens", [0, 3])
def test_the_plan_counts_what_the_engine_allocates(snapshots: int, draft_tokens: int) -> None:
    """Sizes as the server makes them, against the tensors of the state that they lead to."""
    spec = replace(SPEC, layers=SPEC.layers[:4])
    config = EngineConfig(
        device="cuda",
        drafter=DrafterName.NEXTN if draft_tokens else DrafterName.NONE,
        draft_tokens=draft_tokens,
        max_sequences=2,
        prefix_snapshots=snapshots,
    )
    sizes = state_sizes(config, max_length=40)
    plan = plan_of(spec, weigh_precisions(spec, layout_named("nvfp4").groups), sizes)
    state = DeviceState.allocate(spec, sizes, torch.bfloat16, torch.device("cpu"))
    caches = [layer for layer in (*state.trunk, *state.head) if isinstance(layer, KeyValueCache)]
    recurrent = [layer for layer in state.trunk if isinstance(layer, DeviceRecurrentState)]
    assert len(caches) == 2
    assert len(recurrent) == 3
    assert plan.of("keys and values") == _nbytes(caches)
    assert plan.of("recurrent states") == _nbytes(recurrent)
    per_snapshot = sum(layer.recurrent[0].nbytes + layer.convolution[0, 0].nbytes for layer in recurrent)
    assert plan.of("kept prompts") == snapshots * per_snapshot


def test_pages_of_the_server_are_room_for_every_sequence_with_drafts_past_its_end() -> None:
    config = EngineConfig(device="cuda", draft_tokens=3, max_sequences=3, page_size=16)
    # 100 positions and two windows of 4: 108, in 7 pages; and the scrap page.
    assert state_sizes(config, 100).pages == 3 * 7 + 1
    assert state_sizes(replace(config, max_total_tokens=160), 100).pages == 10 + 1


def _nbytes(states: Sequence[KeyValueCache | DeviceRecurrentState]) -> int:
    return sum(getattr(state, field.name).nbytes for state in states for field in fields(state))
