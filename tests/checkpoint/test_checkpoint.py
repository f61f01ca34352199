"""Opening a checkpoint: broken files are facts about it, only its absence is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.checkpoint.finding import FindingKind
from draftproof.errors import CheckpointError, UsageError
from tests.support import faults
from tests.support.checkpoints import CheckpointOptions, WrittenCheckpoint, write_checkpoint


@pytest.fixture
def written(tmp_path: Path) -> WrittenCheckpoint:
    return write_checkpoint(tmp_path / "checkpoint", CheckpointOptions(shards=2))


def test_a_folder_gives_configs_tensors_and_its_path(written: WrittenCheckpoint) -> None:
    checkpoint = open_checkpoint(str(written.folder))
    assert checkpoint.folder == written.folder
    assert checkpoint.config.config.content == json.loads((written.folder / "config.json").read_text())
    assert set(checkpoint.inventory.tensors) == set(written.stored)
    assert checkpoint.inventory.findings == ()


def test_bytes_of_tensors_and_of_rows(written: WrittenCheckpoint) -> None:
    checkpoint = open_checkpoint(str(written.folder))
    for name in ("mtp.fc.weight", "model.language_model.layers.0.linear_attn.A_log"):
        entry = checkpoint.inventory.tensors[name]
        data = checkpoint.read_tensor_bytes(entry)
        assert data == faults.read_tensor(written.folder, name).data
        row = len(data) // entry.shape[0]
        assert checkpoint.read_rows(entry, 1, 3) == data[row : 4 * row]
        assert checkpoint.read_rows(entry, entry.shape[0], 0) == b""
        with pytest.raises(ValueError, match="rows"):
            checkpoint.read_rows(entry, entry.shape[0] - 1, 2)


def test_data_that_is_cut_off_raises_when_it_is_read(written: WrittenCheckpoint) -> None:
    file = faults.weight_files(written.folder)[1]
    faults.truncate_file(written.folder, file)
    checkpoint = open_checkpoint(str(written.folder))
    (finding,) = checkpoint.inventory.findings
    (cut,) = finding.tensors
    with pytest.raises(CheckpointError, match=f"{file} ends before"):
        checkpoint.read_tensor_bytes(checkpoint.inventory.tensors[cut])


def test_a_broken_config_does_not_hide_the_weights(written: WrittenCheckpoint) -> None:
    (written.folder / "config.json").write_text("{")
    checkpoint = open_checkpoint(str(written.folder))
    assert checkpoint.config.config.problem is not None
    assert set(checkpoint.inventory.tensors) == set(written.stored)


def test_weights_without_a_config_open(written: WrittenCheckpoint) -> None:
    (written.folder / "config.json").unlink()
    assert not open_checkpoint(str(written.folder)).config.config.present


def test_a_config_without_weights_opens(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    checkpoint = open_checkpoint(str(tmp_path))
    assert [finding.kind for finding in checkpoint.inventory.findings] == [FindingKind.NO_WEIGHTS]


def test_weights_of_another_format_open(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    checkpoint = open_checkpoint(str(tmp_path))
    assert [finding.kind for finding in checkpoint.inventory.findings] == [FindingKind.OTHER_FORMAT]


def test_a_folder_of_something_else_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("nothing")
    with pytest.raises(UsageError, match="holds no checkpoint"):
        open_checkpoint(str(tmp_path))
