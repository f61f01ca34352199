"""One finding for every way in which weight files are broken, and the rest of the folder still read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.checkpoint.finding import Finding, FindingKind
from draftproof.checkpoint.inventory import FileRole, Inventory, take_inventory
from draftproof.checkpoint.source import LocalSource
from tests.support import faults
from tests.support.checkpoints import CheckpointOptions, write_checkpoint
from tests.support.raw_safetensors import RawTensor, write_safetensors

INDEX = "model.safetensors.index.json"
FIRST, SECOND, THIRD = (f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))
HEAD_TENSORS = 15


def byte(value: int = 1) -> RawTensor:
    return RawTensor("U8", (1,), bytes([value]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dense checkpoint in three shards with an index."""
    return write_checkpoint(tmp_path / "checkpoint", CheckpointOptions(shards=3)).folder


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """The same in one file without an index."""
    return write_checkpoint(tmp_path / "single", CheckpointOptions()).folder


def inventory_of(folder: Path) -> Inventory:
    return take_inventory(LocalSource(folder))


def only(folder: Path) -> Finding:
    (finding,) = inventory_of(folder).findings
    return finding


def kinds(folder: Path) -> set[tuple[FindingKind, str]]:
    return {(finding.kind, finding.file) for finding in inventory_of(folder).findings}


def test_sound_checkpoints_have_no_findings(folder: Path, single: Path) -> None:
    sharded, whole = inventory_of(folder), inventory_of(single)
    assert sharded.findings == whole.findings == ()
    assert set(sharded.tensors) == set(whole.tensors) == set(faults.tensor_names(folder))
    assert sharded.unindexed == whole.unindexed == ()
    assert [file.role for file in sharded.files] == [FileRole.LOADED] * 3
    assert sharded.index is not None
    assert sharded.index.total_size == sharded.total_bytes == sum(file.tensor_bytes for file in sharded.files)
    assert whole.index is None


def test_progress_is_told(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    take_inventory(LocalSource(folder), lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_shard_that_the_index_names_is_gone(folder: Path) -> None:
    lost = {
        name
        for name, file in json.loads((folder / INDEX).read_text())["weight_map"].items()
        if file == SECOND
    }
    faults.delete_shard(folder, SECOND)
    found = only(folder)
    assert (found.kind, found.file, set(found.tensors)) == (FindingKind.MISSING_SHARD, SECOND, lost)
    assert f"names {SECOND}, which is not there" in found.message
    assert not lost & set(inventory_of(folder).tensors)


def test_numbered_files_with_a_gap_and_no_index(folder: Path) -> None:
    (folder / INDEX).unlink()
    assert inventory_of(folder).findings == ()
    faults.delete_shard(folder, SECOND)
    assert kinds(folder) == {(FindingKind.MISSING_SHARD, SECOND)}


def test_an_index_of_files_that_are_not_there_beside_complete_ones(folder: Path) -> None:
    """The index is of another download: its names are all gone, complete files lie beside it."""
    for number, name in enumerate((FIRST, SECOND, THIRD), 1):
        (folder / name).rename(folder / f"weights-{number}.safetensors")
    found = kinds(folder)
    assert (FindingKind.STALE_INDEX, INDEX) in found
    assert {file for kind, file in found if kind is FindingKind.MISSING_SHARD} == {FIRST, SECOND, THIRD}
    assert {file for kind, file in found if kind is FindingKind.RENAMED_SHARD} == {
        f"weights-{number}.safetensors" for number in (1, 2, 3)
    }


def test_a_renamed_shard_is_recognised_by_its_tensors(folder: Path) -> None:
    renamed = f"{SECOND}_.safetensors"
    (folder / SECOND).rename(folder / renamed)
    assert kinds(folder) == {(FindingKind.MISSING_SHARD, SECOND), (FindingKind.RENAMED_SHARD, renamed)}


@pytest.mark.parametrize("missing", [1, 100])
def test_a_truncated_shard_names_what_is_cut(folder: Path, missing: int) -> None:
    faults.truncate_file(folder, THIRD, missing)
    found = only(folder)
    assert (found.kind, found.file) == (FindingKind.TRUNCATED_FILE, THIRD)
    assert f"{missing} bytes short" in found.message
    assert set(found.tensors) < set(inventory_of(folder).tensors)


def test_trailing_bytes(single: Path) -> None:
    faults.append_bytes(single, "model.safetensors", b"\0\0")
    assert only(single).message == "model.safetensors has 2 bytes after its last tensor"


def test_a_broken_header_leaves_the_other_files(folder: Path) -> None:
    (folder / SECOND).write_bytes(b"\xff" * 100)
    found = only(folder)
    assert (found.kind, found.file) == (FindingKind.BROKEN_FILE, SECOND)
    assert {entry.file for entry in inventory_of(folder).tensors.values()} == {FIRST, THIRD}


def test_an_empty_file(folder: Path) -> None:
    (folder / SECOND).write_bytes(b"")
    assert only(folder) == Finding(FindingKind.EMPTY_FILE, SECOND, f"{SECOND} is empty")


def test_a_file_without_tensors(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {})
    assert only(tmp_path).message == "model.safetensors holds no tensor"


def test_the_index_promises_a_tensor_that_the_shard_lacks(folder: Path) -> None:
    faults.drop_from_shard_only(folder, "mtp.fc.weight")
    found = {finding.kind: finding for finding in inventory_of(folder).findings}
    # The size in the index counts the tensor that is gone.
    assert set(found) == {FindingKind.TENSOR_NOT_IN_SHARD, FindingKind.TOTAL_SIZE_MISMATCH}
    assert found[FindingKind.TENSOR_NOT_IN_SHARD].tensors == ("mtp.fc.weight",)
    assert "mtp.fc.weight" not in inventory_of(folder).tensors


def test_a_shard_holds_a_tensor_that_the_index_does_not_name(folder: Path) -> None:
    content = json.loads((folder / INDEX).read_text())
    file = content["weight_map"].pop("mtp.fc.weight")
    (folder / INDEX).write_text(json.dumps(content))
    found = only(folder)
    assert (found.kind, found.file) == (FindingKind.TENSOR_NOT_IN_INDEX, file)
    assert found.tensors == ("mtp.fc.weight",)
    assert [entry.name for entry in inventory_of(folder).unindexed] == ["mtp.fc.weight"]


def test_the_index_points_at_the_wrong_shard(folder: Path) -> None:
    content = json.loads((folder / INDEX).read_text())
    content["weight_map"]["mtp.fc.weight"] = FIRST
    (folder / INDEX).write_text(json.dumps(content))
    found = only(folder)
    assert (found.kind, found.file) == (FindingKind.TENSOR_IN_OTHER_SHARD, FIRST)
    assert found.tensors == ("mtp.fc.weight",)
    assert "mtp.fc.weight" not in inventory_of(folder).tensors


def test_the_same_tensor_in_two_shards(folder: Path) -> None:
    faults.duplicate_tensor(folder, "mtp.fc.weight", FIRST)
    found = {finding.kind: finding for finding in inventory_of(folder).findings}
    assert set(found) == {FindingKind.DUPLICATE_TENSOR, FindingKind.TOTAL_SIZE_MISMATCH}
    assert found[FindingKind.DUPLICATE_TENSOR].tensors == ("mtp.fc.weight",)
    # The one that the index names is the one that counts.
    inventory = inventory_of(folder)
    assert inventory.tensors["mtp.fc.weight"].file != FIRST
    assert [(entry.name, entry.file) for entry in inventory.unindexed] == [("mtp.fc.weight", FIRST)]


def test_the_same_tensor_in_two_numbered_files_without_an_index(folder: Path) -> None:
    (folder / INDEX).unlink()
    faults.duplicate_tensor(folder, "mtp.fc.weight", FIRST)
    found = only(folder)
    assert (found.kind, found.tensors) == (FindingKind.DUPLICATE_TENSOR, ("mtp.fc.weight",))


def test_a_wrong_total_size(folder: Path) -> None:
    content = json.loads((folder / INDEX).read_text())
    content["metadata"]["total_size"] += 1
    (folder / INDEX).write_text(json.dumps(content))
    assert only(folder).kind is FindingKind.TOTAL_SIZE_MISMATCH


@pytest.mark.parametrize(
    "file",
    ["mtp.safetensors", "model_mtp.safetensors", "model_extra_tensors.safetensors", "model-mtp.safetensors"],
)
@pytest.mark.parametrize("with_index", [True, False])
def test_a_head_in_a_side_file_is_recognised(folder: Path, single: Path, file: str, with_index: bool) -> None:
    checkpoint = folder if with_index else single
    faults.move_mtp_to_side_file(checkpoint, file)
    found = {finding.kind: finding for finding in inventory_of(checkpoint).findings}
    assert set(found) - {FindingKind.TOTAL_SIZE_MISMATCH} == {FindingKind.UNINDEXED_MTP_FILE}
    finding = found[FindingKind.UNINDEXED_MTP_FILE]
    assert (finding.file, len(finding.tensors)) == (file, HEAD_TENSORS)
    assert len(inventory_of(checkpoint).unindexed) == HEAD_TENSORS


def test_a_head_in_a_sub_folder_is_recognised(folder: Path) -> None:
    (folder / "mtp").mkdir()
    faults.add_stray_file(folder, {"fc.weight": byte()}, "mtp/weights.safetensors")
    assert only(folder).kind is FindingKind.UNINDEXED_MTP_FILE


def test_appended_layers_are_a_head_by_the_name_of_their_file(folder: Path) -> None:
    faults.add_stray_file(folder, {"model.layers.92.eh_proj.weight": byte()}, "mtp.safetensors")
    assert only(folder).kind is FindingKind.UNINDEXED_MTP_FILE


def test_a_model_of_its_own_in_a_sub_folder_is_not_part_of_this_one(folder: Path) -> None:
    (folder / "dflash").mkdir()
    (folder / "dflash/config.json").write_text("{}")
    faults.add_stray_file(folder, {"mtp.fc.weight": byte()}, "dflash/model.safetensors")
    assert inventory_of(folder).findings == ()


def test_a_stray_file_is_named_with_what_it_repeats(folder: Path) -> None:
    faults.add_stray_file(folder, {"lm_head.weight": byte(), "other": byte()})
    found = only(folder)
    assert (found.kind, found.file) == (FindingKind.UNINDEXED_FILE, "model-q4.safetensors")
    assert "1 of them are also in files that are read" in found.message
    assert inventory_of(folder).tensors["lm_head.weight"].dtype == "BF16"


def test_a_stray_file_beside_a_single_one(single: Path) -> None:
    faults.add_stray_file(single, {"lm_head.weight": byte()})
    assert only(single).kind is FindingKind.UNINDEXED_FILE
    assert inventory_of(single).tensors["lm_head.weight"].dtype == "BF16"


def test_a_file_of_another_name_is_read_when_it_is_the_only_one(single: Path) -> None:
    (single / "model.safetensors").rename(single / "weights.safetensors")
    assert inventory_of(single).findings == ()
    assert inventory_of(single).tensors


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.gguf", "consolidated.pth"])
def test_weights_in_another_format_only(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_bytes(b"x")
    assert (only(tmp_path).kind, only(tmp_path).file) == (FindingKind.OTHER_FORMAT, file)


def test_no_weights_at_all(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert only(tmp_path).kind is FindingKind.NO_WEIGHTS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[]", "no object"),
        ('{"weight_map": {}}', "at least one tensor"),
        ('{"weight_map": {"a": 1}}', "not given a file name"),
        ('{"weight_map": {"a": "../../etc/passwd"}}', "no file name inside"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "no file name inside"),
        ('{"weight_map": {"a": "x/../../y"}}', "no file name inside"),
        ('{"weight_map": {"a": "model.safetensors", "a": "model.safetensors"}}', "'a' appears twice"),
        ('{"weight_map": {"a": "m"}, "metadata": {"total_size": -1}}', "total_size"),
        ('{"weight_map": {"a": "m"}, "metadata": {"total_size": "1"}}', "total_size"),
        ('{"weight_map": {"a": "m"}, "metadata": {"total_size": 1e999}}', "too large"),
        ('{"weight_map": ' + "[" * 5000 + "]" * 5000 + "}", "nested deeper"),
    ],
)
def test_a_broken_index_is_a_finding_and_the_files_are_read_all_the_same(
    folder: Path, text: str, message: str
) -> None:
    (folder / INDEX).write_text(text)
    found = only(folder)
    assert found.kind is FindingKind.BROKEN_INDEX
    assert message in found.message
    assert len(inventory_of(folder).tensors) == len(faults.tensor_names(folder))


def test_a_total_size_written_as_a_float_is_a_size(folder: Path) -> None:
    content = json.loads((folder / INDEX).read_text())
    content["metadata"]["total_size"] = float(content["metadata"]["total_size"])
    (folder / INDEX).write_text(json.dumps(content))
    assert inventory_of(folder).findings == ()


def test_links_that_leave_the_folder_are_findings_and_never_opened(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.safetensors"
    write_safetensors(outside, {"secret": byte()})
    (folder / "link.safetensors").symlink_to(outside)
    (folder / "dangling.safetensors").symlink_to(tmp_path / "nothing")
    assert kinds(folder) == {
        (FindingKind.REFUSED_FILE, "link.safetensors"),
        (FindingKind.REFUSED_FILE, "dangling.safetensors"),
    }
    assert "secret" not in {entry.name for entry in inventory_of(folder).unindexed}
