"""Released versions: fetched from the index that pip is configured for, kept, and used without a network."""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from draftproof.errors import EnvironmentProblem, StackError
from draftproof.stacks.find import web
from draftproof.stacks.find.find import StackFinder
from draftproof.stacks.find.kept_trees import Provenance, TreeStore
from draftproof.stacks.request import parse_request
from draftproof.stacks.stack import Stack
from tests.support.package_index import PackageIndex
from tests.support.stack_wheels import (
    REQUIREMENTS,
    SGLANG_FILES,
    VLLM_FILES,
    write_source_archive,
    write_wheel,
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """Lists SGLang 0.5.11 to 0.5.13; the middle one has been withdrawn."""
    monkeypatch.setattr(web, "PAUSE_SECONDS", 0.01)
    files = tmp_path / "files"
    files.mkdir()
    with PackageIndex() as server:
        for version in ("0.5.11", "0.5.12", "0.5.13"):
            wheel = write_wheel(files, "sglang", version, SGLANG_FILES)
            server.add(wheel, yanked="broken on Tuesdays" if version == "0.5.12" else None)
        yield server


def find(text: str, index: PackageIndex, folder: Path, **variables: str) -> Stack:
    return StackFinder({**index.environment(folder), **variables}).find(parse_request(text))


def test_only_the_source_files_of_a_wheel_are_read_and_kept(index: PackageIndex, tmp_path: Path) -> None:
    stack = find("sglang==0.5.13", index, tmp_path)
    assert stack.label == "SGLang 0.5.13"
    assert stack.origin.startswith(f"release 0.5.13 from {index.url} (sglang-0.5.13-")
    assert stack.requires == REQUIREMENTS
    assert stack.python is None
    assert stack.beside is None
    kept = {str(file.relative_to(stack.tree.root)) for file in stack.tree.root.rglob("*") if file.is_file()}
    info = "sglang-0.5.13.dist-info"
    assert kept == {*SGLANG_FILES, f"{info}/METADATA", f"{info}/RECORD"}
    assert stack.tree.text("sglang/srt/server_args.py") == SGLANG_FILES["sglang/srt/server_args.py"]
    size = (tmp_path / "files/sglang-0.5.13-cp38-abi3-manylinux_2_31_x86_64.whl").stat().st_size
    assert index.bytes_served < size / 4


def test_what_was_fetched_needs_no_network(index: PackageIndex, tmp_path: Path) -> None:
    first = find("sglang==0.5.13", index, tmp_path)
    before = len(index.requests)
    index.fail_next(500, 100)
    second = find("sglang==0.5.13", index, tmp_path)
    assert second.tree.root == first.tree.root
    assert second.origin == first.origin
    assert len(index.requests) == before


def test_a_listing_in_html_will_do(index: PackageIndex, tmp_path: Path) -> None:
    index.serves_json = False
    assert find("sglang==0.5.13", index, tmp_path).version == "0.5.13"
    assert find("sglang==0.5.12", index, tmp_path).notes == ("withdrawn from the index: broken on Tuesdays",)


def test_without_sizes_in_the_listing_the_server_is_asked(index: PackageIndex, tmp_path: Path) -> None:
    index.lists_digests = False
    assert find("sglang==0.5.13", index, tmp_path).version == "0.5.13"
    assert any(request.range == "bytes=-1048576" for request in index.requests)


def test_a_withdrawn_version_is_read_and_said_to_be(index: PackageIndex, tmp_path: Path) -> None:
    for _ in ("fetched", "from the cache"):
        stack = find("sglang==0.5.12", index, tmp_path)
        assert stack.notes == ("withdrawn from the index: broken on Tuesdays",)


class Watcher:
    """Notes the steps that are reported."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def advance(self, step: str, done: int, total: int) -> None:
        self.steps.append(step)
        assert 0 < done <= total


@pytest.mark.parametrize("fault", ["no ranges", "another range"])
def test_without_ranges_the_whole_file_is_read_and_its_digest_checked(
    index: PackageIndex, tmp_path: Path, fault: str
) -> None:
    index.honours_ranges = fault != "no ranges"
    index.range_shift = 1 if fault == "another range" else 0
    watcher = Watcher()
    finder = StackFinder(index.environment(tmp_path), watcher)
    assert finder.find(parse_request("sglang==0.5.13")).version == "0.5.13"
    assert "whole (the server" in watcher.steps[0]


def test_a_file_that_is_not_the_listed_one_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    index.honours_ranges = False
    index.add(tmp_path / "files/sglang-0.5.13-cp38-abi3-manylinux_2_31_x86_64.whl", sha256="ab" * 32)
    with pytest.raises(StackError, match=r"has SHA-256 .* lists abababababab"):
        find("sglang==0.5.13", index, tmp_path)
    assert not list((tmp_path / "cache").rglob("*.py"))


def test_a_version_that_is_not_listed_names_its_neighbours(index: PackageIndex, tmp_path: Path) -> None:
    with pytest.raises(StackError) as caught:
        find("sglang==0.5.99", index, tmp_path)
    assert index.url in caught.value.message
    assert caught.value.remedy == "Nearest versions: 0.5.11, 0.5.13."
    assert caught.value.exit_code == 4


def test_a_project_that_is_not_listed(index: PackageIndex, tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"no file of vllm==0\.33\.0 is listed by .* Check pip's index-url"):
        find("vllm==0.33.0", index, tmp_path)


def test_a_transfer_that_breaks_leaves_nothing_behind(index: PackageIndex, tmp_path: Path) -> None:
    index.cut = 1000
    with pytest.raises(EnvironmentProblem, match="cannot be read"):
        find("sglang==0.5.13", index, tmp_path)
    assert not list((tmp_path / "cache").rglob("*.py"))
    index.cut = None
    assert find("sglang==0.5.13", index, tmp_path).version == "0.5.13"


def test_a_transfer_that_breaks_once_is_repeated(index: PackageIndex, tmp_path: Path) -> None:
    index.fail_next(503, 2)
    assert find("sglang==0.5.13", index, tmp_path).version == "0.5.13"


def test_a_server_that_does_not_answer_is_given_up(index: PackageIndex, tmp_path: Path) -> None:
    index.delay = 1.0
    start = time.monotonic()
    with pytest.raises(EnvironmentProblem, match=r"not in the cache and cannot be fetched: .* timed out"):
        find("sglang==0.5.13", index, tmp_path, PIP_TIMEOUT="0.1")
    assert time.monotonic() - start < 3


def test_no_network_and_nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PAUSE_SECONDS", 0.01)
    with PackageIndex() as gone:
        environment = gone.environment(tmp_path)
    with pytest.raises(EnvironmentProblem) as caught:
        StackFinder(environment).find(parse_request("sglang==0.5.12"))
    assert caught.value.exit_code == 4
    assert "sglang==0.5.12 is not in the cache and cannot be fetched" in caught.value.message
    assert "\n" not in str(caught.value)


def test_passwords_are_sent_and_never_shown(index: PackageIndex, tmp_path: Path) -> None:
    index.password = "someone:hunter2"
    with pytest.raises(EnvironmentProblem, match="401"):
        find("sglang==0.5.13", index, tmp_path)
    url = index.url.replace("http://", "http://someone:hunter2@")
    stack = find("sglang==0.5.13", index, tmp_path, PIP_INDEX_URL=url)
    assert "hunter2" not in stack.origin
    assert not any("hunter2" in file.read_text() for file in (tmp_path / "cache").rglob("manifest.json"))
    index.fail_next(403, 10)
    with pytest.raises(EnvironmentProblem) as caught:
        find("sglang==0.5.11", index, tmp_path, PIP_INDEX_URL=url)
    assert "hunter2" not in str(caught.value)


def test_a_source_archive_is_read_when_there_is_no_wheel(index: PackageIndex, tmp_path: Path) -> None:
    index.add(write_source_archive(tmp_path / "files", "sglang", "0.5.14", SGLANG_FILES))
    stack = find("sglang==0.5.14", index, tmp_path)
    assert stack.tree.root.parts[-2:] == ("sglang-0.5.14", "python")
    assert stack.tree.has("sglang/srt/server_args.py")
    assert stack.requires == REQUIREMENTS


def test_a_folder_in_find_links(index: PackageIndex, tmp_path: Path) -> None:
    write_wheel(tmp_path, "vllm", "0.33.0+cu129", VLLM_FILES)
    # Of another project, whose name begins the same way.
    write_wheel(tmp_path, "vllm_extra", "0.33.0", VLLM_FILES)
    stack = find("vllm==0.33.0", index, tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert stack.version == "0.33.0+cu129"
    assert not index.requests


@pytest.mark.parametrize("damage", ["changed", "removed", "added", "manifest"])
def test_a_kept_tree_that_was_touched_is_fetched_again(
    index: PackageIndex, tmp_path: Path, damage: str
) -> None:
    root = find("sglang==0.5.13", index, tmp_path).tree.root
    file = root / "sglang/srt/server_args.py"
    if damage == "changed":
        file.write_text(file.read_text().replace("1", "2"))
    elif damage == "removed":
        file.unlink()
    elif damage == "added":
        (root / "sglang/srt/extra.py").write_text("")
    else:
        (root.parent / "manifest.json").write_text("{}")
    before = len(index.requests)
    stack = find("sglang==0.5.13", index, tmp_path)
    assert len(index.requests) > before
    assert stack.tree.text("sglang/srt/server_args.py") == SGLANG_FILES["sglang/srt/server_args.py"]
    assert not stack.tree.has("sglang/srt/extra.py")
    assert [path.name for path in root.parent.parent.iterdir() if path.name.startswith(".")] == []


def test_a_kept_tree_that_was_copied_still_counts(index: PackageIndex, tmp_path: Path) -> None:
    root = find("sglang==0.5.13", index, tmp_path).tree.root
    for file in root.rglob("*.py"):
        os.utime(file, (1, 1))
    before = len(index.requests)
    find("sglang==0.5.13", index, tmp_path)
    assert len(index.requests) == before


def test_an_interrupted_fetch_never_looks_finished(tmp_path: Path) -> None:
    store = TreeStore(tmp_path)

    def interrupted() -> Iterator[tuple[str, bytes]]:
        yield "sglang/__init__.py", b""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add("key", interrupted(), Provenance("a.whl", "here", "1", "all"))
    assert store.find("key") is None
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_left_is_removed_after_a_day(tmp_path: Path) -> None:
    for name, age in ((".old-1", 2 * 86_400), (".new-1", 60)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    TreeStore(tmp_path).add("key", [("a.py", b"")], Provenance("a.whl", "here", "1", "all"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new-1", "key"]


def test_two_at_once_fetch_once(index: PackageIndex, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        stacks = list(pool.map(lambda _: find("sglang==0.5.13", index, tmp_path), range(4)))
    assert len({stack.tree.root for stack in stacks}) == 1
    assert sum(request.path == "/simple/sglang/" for request in index.requests) == 1


def test_a_cache_that_cannot_be_written_names_the_variable(index: PackageIndex, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="DRAFTPROOF_CACHE"):
        find("sglang==0.5.13", index, tmp_path, DRAFTPROOF_CACHE=str(tmp_path / "file"))


def test_a_wheel_that_lacks_recorded_files_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    whole = write_wheel(tmp_path, "sglang", "0.5.20", SGLANG_FILES)
    broken = tmp_path / "files" / whole.name
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(broken, "w") as target:
        for member in source.infolist():
            if not member.filename.endswith("server_args.py"):
                target.writestr(member, source.read(member))
    index.add(broken)
    with pytest.raises(StackError, match=r"lacks sglang/srt/server_args\.py"):
        find("sglang==0.5.20", index, tmp_path)


def test_a_wheel_that_is_no_stack_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    index.add(write_wheel(tmp_path / "files", "sglang", "0.5.21", {"sglang/__init__.py": ""}))
    with pytest.raises(StackError, match=r"sglang/srt/\*\.py, sglang/srt/models/\*\.py is missing"):
        find("sglang==0.5.21", index, tmp_path)


def test_a_listing_that_makes_no_sense(index: PackageIndex, tmp_path: Path) -> None:
    page = tmp_path / "simple" / "sglang" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<a href='http://[broken/sglang-0.5.12.tar.gz'>x</a>")
    with pytest.raises(EnvironmentProblem, match="makes no sense"):
        find("sglang==0.5.12", index, tmp_path, PIP_INDEX_URL=(tmp_path / "simple").as_uri())


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        '{"files": [1]}',
        '{"files": [{"filename": "sglang-1-py3-none-any.whl", "url": "x", "hashes": null}]}',
    ],
)
def test_a_json_listing_that_makes_no_sense(index: PackageIndex, tmp_path: Path, body: str) -> None:
    index.listing = body
    with pytest.raises(EnvironmentProblem, match="a listing that makes no sense"):
        find("sglang==0.5.13", index, tmp_path)


def test_the_manifest_says_where_the_files_came_from(index: PackageIndex, tmp_path: Path) -> None:
    root = find("sglang==0.5.13", index, tmp_path).tree.root
    manifest = json.loads((root.parent / "manifest.json").read_text())
    assert manifest["provenance"]["place"] == index.url
    assert manifest["provenance"]["checked"] == "its members match its RECORD"
    size, sha256, _ = manifest["files"]["sglang/srt/server_args.py"]
    assert size == len(SGLANG_FILES["sglang/srt/server_args.py"])
    assert len(sha256) == 64
