"""A tree with files of ours beside another's, and one that remembers what was asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.errors import SourceError
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.recorded_reading import RecordedReading
from draftproof.stacks.source import SourceTree


@pytest.fixture
def original(tmp_path: Path) -> SourceTree:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "a.py").write_text("A = 1\n")
    (tmp_path / "pack" / "b.py").write_text("B = 1\n")
    return SourceTree(tmp_path)


def test_files_are_replaced_added_and_removed(original: SourceTree) -> None:
    tree = OverlaidTree(original, {"pack/a.py": "A = 2\n", "ours/c.py": "C = 3\n", "pack/b.py": None})
    assert tree.text("pack/a.py") == "A = 2\n"
    assert tree.text("ours/c.py") == "C = 3\n"
    assert tree.has("ours/c.py")
    assert not tree.has("pack/b.py")
    assert tree.files("pack") == ("pack/a.py",)
    assert tree.digest("pack/a.py") != original.digest("pack/a.py")
    with pytest.raises(SourceError, match=r"pack/b\.py"):
        tree.text("pack/b.py")


def test_what_stays_is_parsed_once_for_both(original: SourceTree) -> None:
    tree = OverlaidTree(original, {"pack/a.py": "A = 2\n"})
    assert tree.syntax("pack/b.py") is original.syntax("pack/b.py")
    assert tree.syntax("pack/a.py") is not original.syntax("pack/a.py")


class _Asked(SourceTree):
    """Notes what it is asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[tuple[str, str]] = []

    def has(self, path: str) -> bool:
        self.asked.append(("has", path))
        return super().has(path)

    def files(self, folder: str) -> tuple[str, ...]:
        self.asked.append(("files", folder))
        return super().files(folder)

    def walk(self, folder: str) -> tuple[str, ...]:
        self.asked.append(("walk", folder))
        return super().walk(folder)

    def digest(self, path: str) -> str:
        self.asked.append(("file", path))
        return super().digest(path)


def test_a_reading_is_replayed_on_another_view(original: SourceTree) -> None:
    recorded = RecordedReading(original)
    recorded.syntax("pack/a.py")
    recorded.has("pack/none.py")
    recorded.files("pack")
    recorded.walk("pack")
    with pytest.raises(SourceError):
        recorded.text("pack/gone.py")
    view = _Asked(original.root)
    recorded.replay(view)
    assert view.asked == [
        ("file", "pack/a.py"),
        ("has", "pack/none.py"),
        ("files", "pack"),
        ("walk", "pack"),
        ("file", "pack/gone.py"),
    ]
