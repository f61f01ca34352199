"""From a checkpoint to an engine: what stops the start, and with which words."""

from __future__ import annotations

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.engine.build import build_engine
from draftproof.engine.config import DrafterName, EngineConfig
from draftproof.engine.request import Request
from draftproof.errors import AccountingError, CheckpointError, UsageError
from draftproof.runtime.sampling import SamplingParameters
from tests.support import faults

SHORT = EngineConfig(max_length=64)
PLAIN = EngineConfig(drafter=DrafterName.NONE, draft_tokens=0, max_length=64)


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
