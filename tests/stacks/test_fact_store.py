"""Kept answers: used while everything that they rest on is the same, and never a moment longer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from draftproof.errors import SourceError
from draftproof.stacks import fact_store
from draftproof.stacks.fact_store import remember
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found
from draftproof.stacks.source import SourceTree
from tests.support.stack_wheels import SGLANG_FILES, write_files

ARGUMENTS = "sglang/srt/server_args.py"
MODELS = "sglang/srt/models"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "facts"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "tree", SGLANG_FILES)


class Asked:
    """A query that counts how often it really runs, and what it looks at."""

    def __init__(self, look: Callable[[SourceTree], object]) -> None:
        self.runs = 0
        self._look = look

    def __call__(self, tree: SourceTree) -> str:
        self.runs += 1
        return repr(self._look(tree))


LOOKS: dict[str, Callable[[SourceTree], object]] = {
    "text": lambda tree: tree.text(ARGUMENTS),
    "syntax": lambda tree: len(tree.syntax(ARGUMENTS).body),
    "digest": lambda tree: tree.digest(ARGUMENTS),
    "has": lambda tree: tree.has(ARGUMENTS),
    "files": lambda tree: tree.files(MODELS),
    "walk": lambda tree: tree.walk("sglang/srt"),
    "containing": lambda tree: tree.containing("sglang/srt", "page_size"),
    "folder_digest": lambda tree: tree.folder_digest("sglang/srt"),
    "folder_state": lambda tree: tree.folder_state("sglang/srt"),
    "nothing there": lambda tree: (tree.has("sglang/new.py"), tree.files("sglang/new")),
}
CHANGES: dict[str, Callable[[Path], object]] = {
    "argument file changed": lambda root: (root / ARGUMENTS).write_text("page_size = 2\n"),
    "argument file removed": lambda root: (root / ARGUMENTS).unlink(),
    "model added": lambda root: (root / MODELS / "new.py").write_text(""),
    "model removed": lambda root: (root / MODELS / "qwen3_5_mtp.py").unlink(),
    "other file added": lambda root: (root / "sglang/new.py").write_text(""),
}
EXPECTED = {
    "argument file changed": {"text", "syntax", "digest", "containing", "folder_digest", "folder_state"},
    "argument file removed": {
        "text", "syntax", "digest", "has", "walk", "containing", "folder_digest", "folder_state",
    },
    "model added": {"files", "walk", "containing", "folder_digest", "folder_state"},
    "model removed": {"files", "walk", "containing", "folder_digest", "folder_state"},
    "other file added": {"nothing there"},
}  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("change", CHANGES)
def test_only_what_the_query_looked_at_counts(folder: Path, look: str, change: str) -> None:
    query = Asked(LOOKS[look])
    first = remember(SourceTree(folder), "name", query, str)
    assert remember(SourceTree(folder), "name", query, str) == first
    assert query.runs == 1
    CHANGES[change](folder)
    try:
        again = remember(SourceTree(folder), "name", query, str)
    except SourceError:
        assert change == "argument file removed"
    else:
        assert again == repr(LOOKS[look](SourceTree(folder)))
    assert (query.runs == 2) == (look in EXPECTED[change])


def test_queries_have_their_own_answers(folder: Path) -> None:
    tree = SourceTree(folder)
    assert remember(tree, "one", lambda tree: 1, int) == 1
    assert remember(tree, "two", lambda tree: 2, int) == 2
    assert remember(tree, "one", lambda tree: 3, int) == 1


def test_trees_have_their_own_answers(folder: Path, tmp_path: Path) -> None:
    other = write_files(tmp_path / "other", SGLANG_FILES)
    assert remember(SourceTree(folder), "name", lambda tree: str(tree.root), str) == str(folder)
    assert remember(SourceTree(other), "name", lambda tree: str(tree.root), str) == str(other)


def test_an_inner_answer_counts_for_the_outer_one(folder: Path) -> None:
    inner = Asked(LOOKS["text"])
    outer = Asked(lambda tree: remember(tree, "inner", inner, str))
    for _ in range(2):
        remember(SourceTree(folder), "outer", outer, str)
    (folder / ARGUMENTS).write_text("page_size = 2\n")
    assert "page_size = 2" in remember(SourceTree(folder), "outer", outer, str)
    assert (outer.runs, inner.runs) == (2, 2)
    # The outer query now finds the inner answer kept, and still depends on what that one read.
    remember(SourceTree(folder), "second outer", outer, str)
    assert inner.runs == 2
    (folder / ARGUMENTS).write_text("page_size = 3\n")
    assert "page_size = 3" in remember(SourceTree(folder), "second outer", outer, str)


@pytest.mark.parametrize("look", ["text", "syntax", "digest", "containing", "folder_digest", "folder_state"])
def test_what_is_read_through_an_overlay_counts_too(folder: Path, look: str) -> None:
    query = Asked(lambda tree: LOOKS[look](OverlaidTree(tree, {"sglang/srt/ours.py": "x = 1\n"})))
    for _ in range(2):
        remember(SourceTree(folder), "name", query, str)
    assert query.runs == 1
    (folder / ARGUMENTS).write_text("page_size = 2\nother = 3\n")
    remember(SourceTree(folder), "name", query, str)
    assert query.runs == 2


@pytest.mark.parametrize("look", ["text", "digest", "has", "files", "containing", "folder_digest"])
def test_an_overlay_is_another_tree(folder: Path, look: str) -> None:
    query = Asked(LOOKS[look])
    remember(SourceTree(folder), "name", query, str)
    over = OverlaidTree(SourceTree(folder), {ARGUMENTS: None, f"{MODELS}/__init__.py": None})
    try:
        remember(over, "name", query, str)
    except SourceError:
        assert look in ("text", "digest")
    assert query.runs == 2


def test_other_code_never_meets_an_old_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Asked(LOOKS["text"])
    remember(SourceTree(folder), "name", query, str)
    monkeypatch.setattr(fact_store, "code_digest", lambda: "of another version")
    remember(SourceTree(folder), "name", query, str)
    assert query.runs == 2


def test_the_code_that_counts_is_that_of_the_queries() -> None:
    code = fact_store.code_digest()
    assert len(code) == 64
    assert code == fact_store.code_digest()


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Fact:
    colour: Colour
    places: tuple[Place, ...]
    share: float | None


def test_typed_answers_come_back_as_they_were(folder: Path) -> None:
    fact = Fact(Colour.RED, (Place("a.py", 3), Place("b.py", 4)), 0.1)
    answer: Reading[Fact] = found(fact, "seen", Place("a.py", 3))
    runs: list[None] = []

    def query(tree: SourceTree) -> Reading[Fact]:
        runs.append(None)
        return answer

    for _ in range(2):
        assert remember(SourceTree(folder), "typed", query, Reading[Fact]) == answer
    assert len(runs) == 1


def test_an_answer_that_json_would_change_is_not_kept(folder: Path, cache: Path) -> None:
    assert remember(SourceTree(folder), "odd", lambda tree: float("nan"), float) != 0
    assert not cache.exists() or not list(cache.iterdir())


def test_no_answer_is_kept_of_a_query_that_fails(folder: Path, cache: Path) -> None:
    with pytest.raises(SourceError):
        remember(SourceTree(folder), "name", lambda tree: tree.text("none.py"), str)
    assert not cache.exists()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"code": 1}', "null", "[" * 100_000])
def test_a_damaged_entry_is_ignored_and_written_anew(folder: Path, cache: Path, damage: str) -> None:
    query = Asked(LOOKS["text"])
    first = remember(SourceTree(folder), "name", query, str)
    (entry,) = cache.iterdir()
    entry.write_text(damage)
    assert remember(SourceTree(folder), "name", query, str) == first
    assert json.loads(entry.read_text())["code"] == fact_store.code_digest()
    assert remember(SourceTree(folder), "name", query, str) == first
    assert query.runs == 2


def test_an_entry_of_another_type_is_ignored(folder: Path) -> None:
    assert remember(SourceTree(folder), "name", lambda tree: "text", str) == "text"
    assert remember(SourceTree(folder), "name", lambda tree: 7, int) == 7


def test_a_cache_that_cannot_be_written_is_no_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "file"))
    assert remember(SourceTree(folder), "name", LOOKS["text"], object)


def test_old_entries_make_room(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_store, "MAX_ENTRIES", 10)
    for number in range(25):
        remember(SourceTree(folder), f"name {number}", lambda tree: 1, int)
    assert len(list(cache.iterdir())) <= 10
