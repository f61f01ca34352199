"""From a checkpoint to an engine: the text of plain decoding, and what stops the start is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.build import BuiltEngine, build_engine, state_sizes
from draftproof.engine.config import ComputeType, DrafterName, EngineConfig
from draftproof.engine.request import Request
from draftproof.errors import AccountingError, CheckpointError, ConfigError, EnvironmentProblem, UsageError
from draftproof.models.loading import LoadedModel
from draftproof.models.weight_storage import WeightStorage
from draftproof.runtime.sampling import SamplingParameters
from tests.support import faults
from tests.support.checkpoints import FP32, CheckpointOptions, WrittenCheckpoint
from tests.support.engines import random_prompt, run_alone, texts

SHORT = EngineConfig(max_length=64)
PLAIN = EngineConfig(drafter=DrafterName.NONE, draft_tokens=0, max_length=64)
REQUESTS = [
    Request("greedy", random_prompt(9, 1), SamplingParameters(max_tokens=16, ignore_eos=True)),
    Request(
        "warm",
        random_prompt(20, 2),
        SamplingParameters(temperature=0.8, seed=3, max_tokens=16, ignore_eos=True),
    ),
]


@pytest.fixture
def folder(moe_checkpoint, tmp_path):
    return faults.copy_of(moe_checkpoint.folder, tmp_path / "copy")


def test_a_promised_head_without_tensors_stops_the_start(folder):
    faults.strip_mtp(folder)
    with pytest.raises(AccountingError, match=r"declares an MTP head .*mtp_num_hidden_layers.* no mtp"):
        build_engine(open_checkpoint(str(folder)), SHORT)


def test_without_a_drafter_a_stripped_head_is_no_obstacle(folder):
    faults.strip_mtp(folder)
    built = build_engine(open_checkpoint(str(folder)), PLAIN)
    completion = built.engine.run([Request("a", (1, 2), SamplingParameters(max_tokens=3, ignore_eos=True))])[
        0
    ]
    assert len(completion.token_ids) == 3


def test_a_head_that_is_not_used_is_skipped_by_name(folder):
    built = build_engine(open_checkpoint(str(folder)), PLAIN)
    assert any("MTP head" in reason for reason, _ in built.report.skipped)


def test_a_config_that_says_no_head_leaves_nothing_to_draft_with(folder):
    faults.set_config(folder, "text_config.mtp_num_hidden_layers", 0)
    with pytest.raises(UsageError, match="no MTP head"):
        build_engine(open_checkpoint(str(folder)), SHORT)


def test_a_context_beyond_the_checkpoints_is_refused(folder):
    with pytest.raises(UsageError, match="positions"):
        build_engine(open_checkpoint(str(folder)), EngineConfig(max_length=10_000_000))


@pytest.mark.parametrize("text", [None, "", "[1]", "no json"], ids=["missing", "empty", "a list", "no JSON"])
def test_a_broken_config_names_the_checkpoint_and_the_remedy(folder, text):
    if text is None:
        (folder / "config.json").unlink()
    else:
        (folder / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json") as caught:
        build_engine(open_checkpoint(str(folder)), SHORT)
    assert str(folder) in caught.value.message
    assert "draftproof verify" in caught.value.remedy


SHARD = "model-00002-of-00003.safetensors"


@pytest.mark.parametrize(
    "damage",
    [faults.delete_shard, faults.truncate_file, faults.append_bytes],
    ids=["shard missing", "one byte short", "trailing byte"],
)
def test_a_damaged_file_stops_the_start_before_anything_is_read(folder, damage):
    damage(folder, SHARD)
    with pytest.raises(CheckpointError, match=SHARD):
        build_engine(open_checkpoint(str(folder)), SHORT)


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


def test_every_sequence_fits_at_its_longest(dense_checkpoint: WrittenCheckpoint) -> None:
    """Four requests of the whole context run at a time, drafts past the end included."""
    config = EngineConfig(max_length=40, max_sequences=4, draft_tokens=5, page_size=4)
    assert state_sizes(config, 40).pages - 1 == 4 * -(-(40 + 6) // 4)
    engine = build_engine(open_checkpoint(str(dense_checkpoint.folder)), config).engine
    for number in range(4):
        parameters = SamplingParameters(seed=number, ignore_eos=True)
        engine.add(Request(f"r{number}", random_prompt(20, number), parameters))
    produced = dict.fromkeys(("r0", "r1", "r2", "r3"), 0)
    running_together = 0
    while engine.has_work:
        outputs = engine.step()
        running_together = max(running_together, len(outputs))
        for output in outputs:
            produced[output.request_id] += len(output.token_ids)
    assert running_together == 4
    assert set(produced.values()) == {20}
    engine.check_integrity()


def test_fewer_positions_than_all_sequences_at_their_longest(dense_checkpoint: WrittenCheckpoint) -> None:
    """They wait for each other, or are computed again; the context is what one can have."""
    few = {"max_total_tokens": 64, "page_size": 4, "max_sequences": 4, "draft_tokens": 3}
    built = build(dense_checkpoint.folder, max_length=48, **few)
    status = built.engine.status()
    assert (status.pages_total, status.snapshots_total) == (16, 0)
    requests = [
        Request(f"r{number}", random_prompt(9, number), SamplingParameters(max_tokens=30, ignore_eos=True))
        for number in range(4)
    ]
    assert {len(done.token_ids) for done in built.engine.run(requests)} == {30}
    assert built.engine.status().preemptions > 0
    assert build(dense_checkpoint.folder, max_length=None, **few).max_length == 60
    with pytest.raises(
        UsageError, match=r"context of 61 takes 65 positions.*there are 64.*--max-total-tokens"
    ):
        build(dense_checkpoint.folder, max_length=61, **few)


def test_positions_for_less_than_one_sequence(dense_checkpoint: WrittenCheckpoint) -> None:
    few = {"page_size": 4, "draft_tokens": 3, "max_length": None}
    with pytest.raises(UsageError, match=r"--max-total-tokens 7 has no room.*The least here is 8"):
        build(dense_checkpoint.folder, max_total_tokens=7, **few)
    assert build(dense_checkpoint.folder, max_total_tokens=8, **few).max_length == 4


@pytest.mark.parametrize("many", [{"max_sequences": 10**9}, {"prefix_snapshots": 10**12}])
def test_state_that_the_machine_cannot_hold(
    dense_checkpoint: WrittenCheckpoint, many: dict[str, int]
) -> None:
    with pytest.raises(EnvironmentProblem, match=r"take .* GB beside the weights.*Lower --max-length"):
        build(dense_checkpoint.folder, max_length=64, **many)


def test_kept_prompts_are_off_until_there_are_snapshots(dense_checkpoint: WrittenCheckpoint) -> None:
    request = Request("r", random_prompt(40, 1), SamplingParameters(max_tokens=4, ignore_eos=True))
    for snapshots, cached in ((0, 0), (4, 32)):
        engine = build(dense_checkpoint.folder, max_length=64, prefix_snapshots=snapshots).engine
        first, second = engine.run([request])[0], engine.run([request])[0]
        assert (first.cached_tokens, second.cached_tokens) == (0, cached)
        assert engine.status().snapshots_total == snapshots


def test_a_device_that_is_not_there(dense_checkpoint: WrittenCheckpoint) -> None:
    with pytest.raises(EnvironmentProblem, match=r"device 'cuda:99' cannot be used.*--device cpu"):
        build(dense_checkpoint.folder, device="cuda:99")
    with pytest.raises(EnvironmentProblem, match="device 'toaster' cannot be used"):
        build(dense_checkpoint.folder, device="toaster")
