"""Source trees in the user's cache folder: written as a whole or not at all, and checked when they are read.

::

    KEY/manifest.json    where the files came from; size, SHA-256 and modification time of each
    KEY/tree/...         the files
    KEY.lock             held by the one process that fetches

A tree is written to a folder of another name and renamed when it is complete, so that an interrupted fetch
never looks like a finished one. A tree that no longer is what its manifest says is fetched again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock

from draftproof.errors import EnvironmentProblem
from draftproof.stacks.source import SourceTree

FORMAT = 1
LOCK_SECONDS = 900.0
ABANDONED_SECONDS = 86_400.0
"""Unfinished folders older than this are left from processes that were killed."""


@dataclass(frozen=True)
class Provenance:
    """Where a kept tree came from.

    Attributes:
        file: name of the wheel or archive.
        place: the index, page or folder, without a password.
        version: as the file's name says it.
        checked: what was checked when it was read, in words.
        yanked: why the index withdrew it; None when it did not.
    """

    file: str
    place: str
    version: str
    checked: str
    yanked: str | None = None


@dataclass(frozen=True)
class KeptTree:
    """A tree that is there and is what its manifest says."""

    folder: Path
    provenance: Provenance


class TreeStore:
    """The kept trees below one folder. Safe for several processes.

    Args:
        folder: made when something is added.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str) -> KeptTree | None:
        """The tree of a key; None when it is not there, incomplete, or was changed since."""
        try:
            manifest = json.loads((self._folder / key / "manifest.json").read_bytes())
            provenance = Provenance(**manifest["provenance"])
            files = {path: _Entry(*entry) for path, entry in manifest["files"].items()}
            if manifest["format"] != FORMAT:
                return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        tree = self._folder / key / "tree"
        if not _is_unchanged(tree, files):
            return None
        return KeptTree(tree, provenance)

    @contextmanager
    def fetching(self, key: str) -> Iterator[None]:
        """Held by the one process that fetches the tree of a key; the others wait, then look again.

        Raises:
            EnvironmentProblem: the folder cannot be written, or the other process does not end.
        """
        with _as_environment_problem(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self._folder / f"{key}.lock", timeout=LOCK_SECONDS)
        try:
            lock.acquire()
        except filelock.Timeout as error:
            raise EnvironmentProblem(
                f"another process has been fetching {key} for {LOCK_SECONDS:.0f} s",
                "Try again when it ended.",
            ) from error
        except (OSError, NotImplementedError):
            # A file system without locks: both fetch, and the renaming decides.
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def add(self, key: str, files: Iterable[tuple[str, bytes]], provenance: Provenance) -> KeptTree:
        """Keeps a tree; replaces what is there under the same key.

        Args:
            key: a plain name.
            files: relative path and content of each; the paths are known to be harmless.
            provenance: kept beside them.

        Raises:
            EnvironmentProblem: the folder cannot be written.
        """
        with _as_environment_problem(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._remove_abandoned()
            partial = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=self._folder))
        try:
            # What `files` raises while it is read is not about this folder.
            entries = {path: self._write(partial / "tree" / path, content) for path, content in files}
            manifest = {"format": FORMAT, "provenance": asdict(provenance), "files": entries}
            with _as_environment_problem(self._folder):
                (partial / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
                self._put_in_place(partial, self._folder / key)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return KeptTree(self._folder / key / "tree", provenance)

    def _write(self, file: Path, content: bytes) -> tuple[int, str, int]:
        with _as_environment_problem(self._folder):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            return len(content), hashlib.sha256(content).hexdigest(), file.stat().st_mtime_ns

    def _put_in_place(self, partial: Path, final: Path) -> None:
        for _ in range(3):
            try:
                partial.rename(final)
            except OSError:
                # Something is there already: an older tree, or one that another process has just put there.
                aside = Path(tempfile.mkdtemp(prefix=f".{final.name}-old-", dir=self._folder))
                with _as_environment_problem(self._folder):
                    if final.exists():
                        final.rename(aside / "tree")
                shutil.rmtree(aside, ignore_errors=True)
            else:
                return
        raise EnvironmentProblem(f"{final} cannot be replaced", "Remove it by hand.")

    def _remove_abandoned(self) -> None:
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if path.name.startswith(".") and path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class _Entry:
    """A file as it was written."""

    size: int
    sha256: str
    modified: int


def _is_unchanged(tree: Path, files: dict[str, _Entry]) -> bool:
    """Sizes and times tell; the content is read only where a time differs (a cache that was copied)."""
    if not set(SourceTree(tree).walk(".")) <= files.keys():
        return False
    return all(_is_same(tree / path, entry) for path, entry in files.items())


def _is_same(file: Path, entry: _Entry) -> bool:
    try:
        status = os.lstat(file)
        if status.st_size != entry.size:
            return False
        if status.st_mtime_ns == entry.modified:
            return True
        return hashlib.sha256(file.read_bytes()).hexdigest() == entry.sha256
    except OSError:
        return False


@contextmanager
def _as_environment_problem(folder: Path) -> Iterator[Any]:
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(
            f"the cache folder {folder} cannot be written: {error.strerror or error}",
            "Name another one in DRAFTPROOF_CACHE.",
        ) from error
