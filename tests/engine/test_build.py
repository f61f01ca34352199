"""From a checkpoint and a config to an engine: the right text, and refusals that name the thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.build import BuiltEngine, build_engine, state_sizes
from draftproof.engine.config import ComputeType, DrafterName, EngineConfig
from draftproof.engine.request import Request
from draftproof.errors import AccountingError, EnvironmentProblem, UsageError
from draftproof.models.loading import LoadedModel
from draftproof.models.stored_linear import WeightStorage
from draftproof.runtime.sampling import SamplingParameters
from tests.support.checkpoints import FP32, CheckpointOptions, WrittenCheckpoint
from tests.support.engines import random_prompt, run_alone, texts
from tests.support.faults import copy_of, strip_mtp

REQUESTS = [
    Request("greedy", random_prompt(9, 1), SamplingParameters(max_tokens=16, ignore_eos=True)),
    Request(
        "warm",
        random_prompt(20, 2),
        SamplingParameters(temperature=0.8, seed=3, max_tokens=16, ignore_eos=True),
    ),
]


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Building sets the number of threads of the process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def build(folder: Path, **fields: object) -> BuiltEngine:
    settings = {"max_length": 128, **fields}
    return build_engine(open_checkpoint(str(folder)), EngineConfig(**settings))  # type: ignore[arg-type]


def test_both_drafters_give_the_text_of_plain_decoding(
    checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint], model: LoadedModel
) -> None:
    folder = checkpoint(CheckpointOptions(moe=True, precision=FP32)).folder
    expected = texts(run_alone(model, REQUESTS))
    for fields in (
        {"draft_tokens": 3},
        {"drafter": DrafterName.NONE, "draft_tokens": 0},
        {"max_sequences": 1},
    ):
        built = build(folder, **fields)
        assert texts(built.engine.run(REQUESTS)) == expected
        built.engine.check_integrity()


def test_what_loading_found_is_reported(moe_checkpoint: WrittenCheckpoint) -> None:
    with_head = build(moe_checkpoint.folder)
    without = build(moe_checkpoint.folder, drafter=DrafterName.NONE)
    vision = sum("visual." in name for name in moe_checkpoint.stored)
    head = len(moe_checkpoint.mtp_names)
    assert with_head.report.skipped == (("vision tower (text only)", vision),)
    assert with_head.report.taken == len(moe_checkpoint.stored) - vision
    assert set(without.report.skipped) == {
        ("vision tower (text only)", vision),
        ("MTP head (drafting without it)", head),
    }
    assert without.report.taken == len(moe_checkpoint.stored) - vision - head
    assert with_head.max_length == 128


@pytest.mark.parametrize("storage", WeightStorage)
@pytest.mark.parametrize("compute_type", ComputeType)
def test_every_storage_and_compute_type_runs(
    nvfp4_checkpoint: WrittenCheckpoint, storage: WeightStorage, compute_type: ComputeType
) -> None:
    built = build(nvfp4_checkpoint.folder, weight_storage=storage, compute_type=compute_type)
    assert [len(completion.token_ids) for completion in built.engine.run(REQUESTS)] == [16, 16]


def test_every_sequence_fits_at_full_length(dense_checkpoint: WrittenCheckpoint) -> None:
    """Four requests of the whole context at a time, drafts past the end included."""
    built = build(dense_checkpoint.folder, max_length=40, max_sequences=4, draft_tokens=5, page_size=4)
    requests = [
        Request(f"r{number}", random_prompt(20, number), SamplingParameters(seed=number, ignore_eos=True))
        for number in range(4)
    ]
    for request in requests:
        built.engine.add(request)
    built.engine.step()
    assert len([output for output in _run_out(built) if output]) > 0
    sizes = state_sizes(EngineConfig(max_sequences=4, draft_tokens=5, page_size=4), 40)
    assert sizes.pages - 1 == 4 * -(-(40 + 6) // 4)


def _run_out(built: BuiltEngine) -> list[int]:
    counts: dict[str, int] = {}
    while built.engine.has_work:
        for output in built.engine.step():
            counts[output.request_id] = counts.get(output.request_id, 0) + len(output.token_ids)
    built.engine.check_integrity()
    assert all(count in (19, 20) for count in counts.values())
    return list(counts.values())


def test_nextn_without_a_head_in_the_config(
    checkpoint: Callable[[CheckpointOptions], WrittenCheckpoint],
) -> None:
    folder = checkpoint(CheckpointOptions(mtp=False)).folder
    with pytest.raises(UsageError, match=r"declares no MTP head.*--drafter none"):
        build(folder)
    assert build(folder, drafter=DrafterName.NONE).engine.drafter.name == "none"


def test_nextn_with_a_declared_head_that_is_not_there(
    dense_checkpoint: WrittenCheckpoint, tmp_path: Path
) -> None:
    folder = copy_of(dense_checkpoint.folder, tmp_path / "stripped")
    strip_mtp(folder)
    with pytest.raises(AccountingError, match=r"tensor mtp\..* is missing"):
        build(folder)
    assert build(folder, drafter=DrafterName.NONE).report.taken > 0


def test_a_context_longer_than_the_model(dense_checkpoint: WrittenCheckpoint) -> None:
    with pytest.raises(UsageError, match="a context of 4097 is more than the checkpoint's 4096 positions"):
        build(dense_checkpoint.folder, max_length=4097)


def test_a_device_that_is_not_there(dense_checkpoint: WrittenCheckpoint) -> None:
    with pytest.raises(EnvironmentProblem, match=r"device 'cuda:99' cannot be used.*--device cpu"):
        build(dense_checkpoint.folder, device="cuda:99")
    with pytest.raises(EnvironmentProblem, match="device 'toaster' cannot be used"):
        build(dense_checkpoint.folder, device="toaster")
