"""Answers of queries about a source, kept until something that the query looked at changes.

A query runs on a view of the tree that notes what it consults: files, listings, searches. The answer is
stored as JSON in the user's cache folder together with these notes. Later it is used only when everything
consulted still is what it was: files by their SHA-256, listings by their names, searches through whole
folders by the sizes and times of the files. Answers of other versions of the queries never count: the digest
of draftproof's own source is part of what has to match. A damaged entry counts as none.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from draftproof.errors import SourceError
from draftproof.stacks.cache_folder import cache_folder
from draftproof.stacks.source import SourceTree

MAX_ENTRY_BYTES = 16 << 20
MAX_ENTRIES = 4_000
"""Above this number the older half is removed."""

_PACKAGES = ("stacks", "hardware", "architecture", "checkpoint")
"""The parts of draftproof that queries can call."""

T = TypeVar("T")


def remember(tree: SourceTree, name: str, query: Callable[[SourceTree], T], kind: type[T]) -> T:
    """The answer of a query about a tree: the stored one when it still holds, else a new one.

    Args:
        tree: the source; may itself be a view that another query notes its reading by.
        name: of the query, with everything that its answer depends on besides the tree.
        query: reads nothing but the tree that it is given.
        kind: type of the answer, for its way through JSON: frozen dataclasses, tuples, enums, numbers, text.

    Raises:
        SourceError: raised by the query; nothing is stored then.
    """
    entry = _entry_file(tree, name)
    hashable: Any = kind
    adapter: TypeAdapter[T] = _adapter(hashable)
    stored = _stored(entry, tree, adapter)
    if stored is not None:
        return stored.answer
    view = _NotingTree(tree)
    answer = query(view)
    _store(entry, view.notes(), answer, adapter)
    return answer


@dataclass(frozen=True)
class _Stored(Generic[T]):
    """An answer that was found; the answer itself may be None."""

    answer: T


class _NotingTree(SourceTree):
    """A view on a tree that notes what is consulted: kind of look, path, what was seen."""

    def __init__(self, tree: SourceTree) -> None:
        super().__init__(tree.root)
        self._tree = tree
        self._consulted: dict[tuple[str, str], None] = {}

    def notes(self) -> tuple[tuple[str, str, str], ...]:
        """Everything consulted, with what is seen there."""
        return tuple((look, path, _seen(self._tree, look, path)) for look, path in list(self._consulted))

    def has(self, path: str) -> bool:
        self._consulted["has", path] = None
        return self._tree.has(path)

    def files(self, folder: str) -> tuple[str, ...]:
        self._consulted["files", folder] = None
        return self._tree.files(folder)

    def walk(self, folder: str) -> tuple[str, ...]:
        self._consulted["walk", folder] = None
        return self._tree.walk(folder)

    def text(self, path: str) -> str:
        self._consulted["file", path] = None
        return self._tree.text(path)

    def syntax(self, path: str) -> ast.Module:
        self._consulted["file", path] = None
        return self._tree.syntax(path)

    def digest(self, path: str) -> str:
        self._consulted["file", path] = None
        return self._tree.digest(path)

    def folder_digest(self, folder: str) -> str:
        self._consulted["state", folder] = None
        return self._tree.folder_digest(folder)

    def folder_state(self, folder: str) -> str:
        self._consulted["state", folder] = None
        return self._tree.folder_state(folder)

    def containing(self, folder: str, word: str) -> tuple[str, ...]:
        self._consulted["state", folder] = None
        return self._tree.containing(folder, word)

    def _content(self, path: str) -> bytes:
        self._consulted["file", path] = None
        return self._tree._content(path)


def _seen(tree: SourceTree, look: str, path: str) -> str:
    """What is there now, in a form that can be compared."""
    try:
        if look == "file":
            return tree.digest(path)
        if look == "has":
            return str(tree.has(path))
        if look == "state":
            return tree.folder_state(path)
        if look in ("files", "walk"):
            names = tree.files(path) if look == "files" else tree.walk(path)
            return hashlib.sha256("\n".join(names).encode()).hexdigest()
    except SourceError as error:
        return f"error {error.message}"
    return "unknown look"


def _stored(entry: Path, tree: SourceTree, adapter: TypeAdapter[T]) -> _Stored[T] | None:
    try:
        if entry.stat().st_size > MAX_ENTRY_BYTES:
            return None
        content: dict[str, Any] = json.loads(entry.read_bytes())
        if content["code"] != code_digest():
            return None
        if any(_seen(tree, look, path) != seen for look, path, seen in content["consulted"]):
            return None
        return _Stored(adapter.validate_json(content["answer"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _store(entry: Path, notes: tuple[tuple[str, str, str], ...], answer: T, adapter: TypeAdapter[T]) -> None:
    """No error when the answer does not survive the way through JSON, or the folder cannot be written."""
    try:
        written = adapter.dump_json(answer, warnings="error")
        if adapter.validate_json(written) != answer:
            return
    except (ValueError, ValidationError, RecursionError):
        return
    content = {"code": code_digest(), "consulted": notes, "answer": written.decode()}
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        _make_room(entry.parent)
        descriptor, name = tempfile.mkstemp(prefix=".", dir=entry.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(content, stream)
            Path(name).replace(entry)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _make_room(folder: Path) -> None:
    files = [path for path in folder.iterdir() if path.is_file()]
    if len(files) >= MAX_ENTRIES:
        for path in sorted(files, key=lambda path: path.stat().st_mtime)[: MAX_ENTRIES // 2]:
            path.unlink(missing_ok=True)


def _entry_file(tree: SourceTree, name: str) -> Path:
    key = hashlib.sha256(f"{tree.root.absolute()}\0{name}".encode(errors="surrogateescape")).hexdigest()
    return cache_folder(os.environ) / "facts" / f"{key[:40]}.json"


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Making one takes milliseconds."""
    return TypeAdapter(kind)


@functools.cache
def code_digest() -> str:
    """SHA-256 over the source of everything that queries can call, and the version of Python."""
    package = Path(__file__).parent.parent
    total = hashlib.sha256(sys.version.encode())
    for part in _PACKAGES:
        for file in sorted((package / part).rglob("*.py")):
            total.update(str(file.relative_to(package)).encode())
            total.update(file.read_bytes())
    return total.hexdigest()
