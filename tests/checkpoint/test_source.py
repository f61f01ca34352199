"""A folder as a source: nothing outside it is read, and every refusal says why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from draftproof.checkpoint import source as source_module
from draftproof.checkpoint.source import LocalSource
from draftproof.errors import CheckpointError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint"
    (made / "sub" / "below").mkdir(parents=True)
    (made / ".git").mkdir()
    for name in ("config.json", "sub/a.bin", "sub/below/b.bin", ".git/c", ".hidden"):
        (made / name).write_bytes(name.encode())
    return made


def test_files_are_listed_by_relative_name_and_size(folder: Path) -> None:
    assert LocalSource(folder).list_files() == {
        "config.json": 11,
        "sub/a.bin": 9,
        "sub/below/b.bin": 15,
        ".hidden": 7,
    }


def test_folders_deep_below_are_not_looked_into(folder: Path) -> None:
    deep = folder.joinpath(*"abcdef")
    deep.mkdir(parents=True)
    (deep / "file").touch()
    assert not [name for name in LocalSource(folder).list_files() if name.startswith("a/")]


def test_an_absurd_number_of_files_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "MAX_FILES", 3)
    with pytest.raises(CheckpointError, match="more than 3 files"):
        LocalSource(folder)


def test_reading_whole_files_and_ranges(folder: Path) -> None:
    source = LocalSource(folder)
    assert source.read("sub/a.bin", 9) == b"sub/a.bin"
    assert source.read_range("sub/a.bin", 4, 3) == b"a.b"
    assert source.read_range("sub/a.bin", 9, 0) == b""


@pytest.mark.parametrize(("start", "length"), [(0, 12), (11, 1), (-1, 2), (5, -1), (2**62, 2**62)])
def test_ranges_outside_the_file(folder: Path, start: int, length: int) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json ends before"):
        LocalSource(folder).read_range("config.json", start, length)


def test_a_file_above_the_limit_is_not_read(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="has 11 bytes, more than the 10"):
        LocalSource(folder).read("config.json", 10)


@pytest.mark.parametrize("name", ["missing", "../secret", "/etc/passwd", "sub/../../secret", "sub", ""])
def test_names_that_are_not_listed_are_not_opened(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_text("secret")
    with pytest.raises(CheckpointError, match="has no file"):
        LocalSource(folder).read(name, 100)


def test_links_inside_the_folder_are_followed(folder: Path) -> None:
    (folder / "link.json").symlink_to("config.json")
    source = LocalSource(folder)
    assert source.read("link.json", 100) == b"config.json"
    assert source.refused == {}


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "sub/../../secret"])
def test_links_that_leave_the_folder_are_refused(folder: Path, target: str) -> None:
    (folder.parent / "secret").write_text("secret")
    (folder / "link").symlink_to(target)
    source = LocalSource(folder)
    assert "link" not in source.list_files()
    assert "leaves the folder" in source.refused["link"]
    with pytest.raises(CheckpointError, match="link is not read: it is a link that leaves the folder"):
        source.read("link", 100)


def test_a_linked_folder_is_not_entered(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "secret").touch()
    (folder / "linked").symlink_to(outside)
    source = LocalSource(folder)
    assert not [name for name in source.list_files() if name.startswith("linked")]


def test_a_link_to_nothing_and_a_loop_are_refused(folder: Path) -> None:
    (folder / "dangling").symlink_to("nothing")
    (folder / "loop").symlink_to("loop")
    refused = LocalSource(folder).refused
    assert set(refused) == {"dangling", "loop"}
    assert "link to nothing" in refused["dangling"]


def test_a_pipe_is_refused_and_never_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.safetensors")
    assert LocalSource(folder).refused == {"pipe.safetensors": "not a regular file"}


def test_a_file_swapped_for_a_link_after_the_listing_is_not_followed(folder: Path) -> None:
    (folder.parent / "secret").write_text("secret-secret")
    source = LocalSource(folder)
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("../secret")
    with pytest.raises(CheckpointError, match="leaves the folder"):
        source.read("config.json", 100)


def test_a_file_that_shrinks_or_vanishes_after_the_listing(folder: Path) -> None:
    source = LocalSource(folder)
    (folder / "config.json").write_bytes(b"short")
    with pytest.raises(CheckpointError, match="ends before byte 11"):
        source.read("config.json", 100)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        source.read("config.json", 100)


def test_a_snapshot_of_the_hub_cache_may_point_at_its_own_blobs_only(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "1234").write_bytes(b"{}")
    (snapshot / "config.json").symlink_to("../../blobs/1234")
    other = tmp_path / "hub" / "models--org--other" / "blobs"
    other.mkdir(parents=True)
    (other / "5678").write_bytes(b"secret")
    (snapshot / "stolen.json").symlink_to("../../../models--org--other/blobs/5678")
    source = LocalSource(snapshot)
    assert source.read("config.json", 10) == b"{}"
    assert set(source.refused) == {"stolen.json"}


def test_a_folder_that_is_itself_a_link_is_its_target(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert LocalSource(link).read("config.json", 100) == b"config.json"


def test_names_that_are_no_text_are_refused_in_a_form_that_can_be_printed(folder: Path) -> None:
    (Path(os.fsdecode(os.fsencode(folder) + b"/\xff.safetensors"))).touch()
    (refused,) = LocalSource(folder).refused.items()
    assert refused == ("'\\udcff.safetensors'", "its name is no valid text")


def test_what_may_not_be_read_is_refused_not_broken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("config.json"))
    source = LocalSource(folder)
    assert source.refused == {"config.json": "no permission to read it"}
    with pytest.raises(CheckpointError, match=r"config\.json is not read: no permission"):
        source.read("config.json", 100)


def test_a_folder_below_that_cannot_be_listed_does_not_hide_the_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def refuse_sub(path: Path) -> object:
        if str(path).endswith("/sub"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse_sub)
    source = LocalSource(folder)
    assert source.refused == {"sub": "Permission denied"}
    assert "config.json" in source.list_files()


def test_the_folder_itself_must_be_listable(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be listed"):
        LocalSource(tmp_path / "nothing")
