"""A result file is whole or not there, and a place that takes none is refused before anything is measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import draftproof
from draftproof.bench import record
from draftproof.bench.record import require_writable, write_result
from draftproof.errors import UsageError


def test_the_folder_is_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "result.json"
    require_writable(path)
    assert list(path.parent.iterdir()) == []
    write_result(path, {"kind": "bench"})
    assert json.loads(path.read_text()) == {"kind": "bench"}
    assert list(path.parent.iterdir()) == [path]


def test_a_result_in_the_way_of_another_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("older")
    require_writable(path)
    assert path.read_text() == "older"
    write_result(path, {})
    assert path.read_text() == "{}\n"


@pytest.mark.parametrize("name", ["folder", "file/result.json", "x" * 300])
def test_a_place_that_takes_no_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Name another place for the result"):
        require_writable(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be written"):
        write_result(tmp_path / name, {})
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file"}


def test_an_installed_package_has_no_commit_even_inside_of_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "environment" / "draftproof"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
    ]
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "theirs"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.delenv(record.COMMIT_VARIABLE, raising=False)
    monkeypatch.setattr(draftproof, "__file__", str(package / "__init__.py"))
    assert record._commit() == ""
    for words in (["add", "."], ["commit", "--quiet", "--message", "ours"]):
        subprocess.run([*git, *words], check=True)
    assert len(record._commit()) == 40
