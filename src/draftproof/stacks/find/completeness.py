"""Whether a folder really is a stack's source, and all of it."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from draftproof.errors import StackError
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import StackKind

MAX_RECORD_BYTES = 16 << 20
_NAMED = 3
"""File names in a message; further ones are counted."""


@dataclass(frozen=True)
class _Marks:
    """What every version of a stack has: folders with .py files in them, and files."""

    folders: tuple[str, ...]
    files: tuple[str, ...]


_MARKS = {
    StackKind.SGLANG: _Marks(("sglang/srt", "sglang/srt/models"), ("sglang/__init__.py",)),
    StackKind.VLLM: _Marks(
        ("vllm/engine", "vllm/model_executor", "vllm/model_executor/models"), ("vllm/__init__.py",)
    ),
    StackKind.NATIVE: _Marks(("draftproof/engine", "draftproof/models"), ("draftproof/__init__.py",)),
}


def require_complete(tree: SourceTree, kind: StackKind, origin: str) -> None:
    """Refuse a tree that lacks what every version of the stack has.

    Raises:
        StackError: names what is missing.
    """
    marks = _MARKS[kind]
    missing = [path for path in marks.files if not tree.has(path)]
    missing += [f"{folder}/*.py" for folder in marks.folders if not tree.files(folder)]
    if missing:
        raise StackError(
            f"{origin} is no complete {kind.title} source: {_named(missing)} is missing",
            "Unpack or install it again, or name another place.",
        )


def require_recorded(tree: SourceTree, kind: StackKind, metadata: Path, origin: str) -> tuple[str, ...]:
    """Compare a tree with the RECORD of the wheel that it comes from.

    Args:
        tree: the source.
        kind: which stack; only files of its package count.
        metadata: the .dist-info folder, in the tree's root.
        origin: for messages.

    Returns:
        Files whose size is not the recorded one: somebody changed them since the installation.

    Raises:
        StackError: .py files that the RECORD lists are not there, or are empty and should not be.
    """
    recorded = _recorded_sizes(metadata / "RECORD", kind.package)
    present = set(tree.walk(kind.package))
    # Walking leaves hidden folders out; wheels hold some.
    missing = sorted(path for path in recorded.keys() - present if not tree.has(path))
    changed: list[str] = []
    for path in sorted(recorded.keys() & present):
        size, found = recorded[path], _size(tree.root / path)
        if size is None or size == found:
            continue
        (changed if found else missing).append(path)
    if missing:
        raise StackError(
            f"{origin} is only half there: {_named(missing)} of {len(recorded)} .py files listed in "
            f"{metadata.name}/RECORD are missing or empty",
            "Unpack or install it again.",
        )
    return tuple(changed)


def changed_note(changed: tuple[str, ...]) -> tuple[str, ...]:
    """A note about files that were changed; none when there are none."""
    if not changed:
        return ()
    verb = "differ" if len(changed) > 1 else "differs"
    return (f"{_named(list(changed))} {verb} in size from what the wheel installed",)


def _recorded_sizes(record: Path, package: str) -> dict[str, int | None]:
    """Sizes of the package's .py files; nothing when there is no RECORD (conda and Linux packages)."""
    try:
        with record.open("rb") as stream:
            text = stream.read(MAX_RECORD_BYTES).decode("utf-8")
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}
    return {
        row[0]: int(row[2]) if len(row) > 2 and row[2].isdecimal() else None
        for row in rows
        if row and row[0].startswith(f"{package}/") and row[0].endswith(".py")
    }


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _named(paths: list[str]) -> str:
    named = ", ".join(paths[:_NAMED])
    return f"{named} and {len(paths) - _NAMED} more" if len(paths) > _NAMED else named
