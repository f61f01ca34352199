"""Where a checkpoint's bytes come from, as a small protocol, and its local form."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

from draftproof.errors import CheckpointError

MAX_DEPTH = 3
"""Folders below the checkpoint's own that are looked into (a draft model's sub-folder, for instance)."""
MAX_FILES = 20_000


class Source(Protocol):
    """Read access to the files of one checkpoint. Safe to use from several threads."""

    @property
    def label(self) -> str:
        """Folder or repository, for messages."""
        ...

    @property
    def first_read(self) -> int:
        """Bytes worth asking for at once when the length of a header is not known yet."""
        ...

    @property
    def concurrent_reads(self) -> int:
        """Reads that are worth starting at the same time: many where each one waits."""
        ...

    @property
    def refused(self) -> Mapping[str, str]:
        """Files that must not or cannot be read, with the reason (a link that leaves the folder)."""
        ...

    def list_files(self) -> Mapping[str, int]:
        """Relative posix name and size in bytes of every readable file."""
        ...

    def read(self, name: str, limit: int) -> bytes:
        """A whole small file.

        Raises:
            CheckpointError: it is missing, refused, or larger than `limit` bytes.
        """
        ...

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`.

        Raises:
            CheckpointError: the file is missing, refused, or ends before.
        """
        ...


def require_small(name: str, size: int, limit: int) -> None:
    """Refuse to read a whole file of more than `limit` bytes (CheckpointError)."""
    if size > limit:
        raise CheckpointError(f"{name} has {size} bytes, more than the {limit} that such a file may have")


def require_inside(name: str, size: int, start: int, length: int) -> None:
    """Refuse a range that is not inside a file of `size` bytes (CheckpointError)."""
    if start < 0 or length < 0 or start + length > size:
        raise CheckpointError(f"{name} ends before byte {start + length}")


class LocalSource:
    """A folder. Nothing outside it is ever opened, except the blobs that a hub cache's own links point to.

    Args:
        folder: exists.

    Raises:
        CheckpointError: it cannot be listed, or holds an absurd number of files.
    """

    first_read = 8
    concurrent_reads = 1

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._roots = _allowed_roots(folder)
        self._refused: dict[str, str] = {}
        self._files = self._scan()

    @property
    def label(self) -> str:
        """The folder."""
        return str(self._folder)

    @property
    def folder(self) -> Path:
        """The folder."""
        return self._folder

    @property
    def refused(self) -> Mapping[str, str]:
        """Files that are there but will not be opened, with the reason."""
        return self._refused

    def list_files(self) -> Mapping[str, int]:
        """Sizes as they were when the source was made."""
        return self._files

    def read(self, name: str, limit: int) -> bytes:
        """A whole small file; errors as `Source.read`."""
        size = self._size(name)
        require_small(name, size, limit)
        return self.read_range(name, 0, size)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`; errors as `Source.read_range`."""
        require_inside(name, self._size(name), start, length)
        try:
            # A file may have been swapped for a link since the scan.
            path = self._inside(self._folder / name)
            with path.open("rb", buffering=0) as file:
                return _read_fully(file.fileno(), start, length, name)
        except OSError as error:
            raise CheckpointError(f"{name} cannot be read: {error.strerror or error}") from error

    def path(self, name: str) -> Path:
        """The file's path on this machine, links resolved.

        Raises:
            CheckpointError: it is missing or refused.
        """
        self._size(name)
        return self._inside(self._folder / name)

    def _size(self, name: str) -> int:
        if name in self._refused:
            raise CheckpointError(f"{name} is not read: {self._refused[name]}")
        if name not in self._files:
            raise CheckpointError(f"{self._folder} has no file {name}")
        return self._files[name]

    def _scan(self) -> dict[str, int]:
        found: dict[str, int] = {}
        pending = [(self._folder, 0)]
        while pending:
            folder, depth = pending.pop()
            for entry in self._entries(folder):
                name = PurePosixPath(Path(entry.path).relative_to(self._folder)).as_posix()
                if not _is_text(name):
                    self._refused[ascii(name)] = "its name is no valid text"
                elif entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH and not entry.name.startswith("."):
                        pending.append((Path(entry.path), depth + 1))
                elif (size := self._readable_size(name, Path(entry.path))) is not None:
                    found[name] = size
                if len(found) > MAX_FILES:
                    raise CheckpointError(f"{self._folder} holds more than {MAX_FILES} files")
        return found

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """A folder's entries by name; a folder below that cannot be listed is noted as refused."""
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if folder == self._folder:
                raise CheckpointError(f"{folder} cannot be listed: {error.strerror or error}") from error
            self._refused[folder.relative_to(self._folder).as_posix()] = str(error.strerror)
            return []

    def _readable_size(self, name: str, path: Path) -> int | None:
        """Size of a regular file inside the folder; everything else is noted as refused."""
        try:
            status = self._inside(path).stat()
        except CheckpointError as error:
            self._refused[name] = error.message
            return None
        except OSError as error:
            self._refused[name] = (
                f"link to nothing ({error.strerror})" if path.is_symlink() else str(error.strerror)
            )
            return None
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            self._refused[name] = "not a regular file"
            return None
        if not os.access(path, os.R_OK):
            self._refused[name] = "no permission to read it"
            return None
        return status.st_size

    def _inside(self, path: Path) -> Path:
        # Path.resolve raises RuntimeError for a loop of links before Python 3.13.
        target = Path(os.path.realpath(path))
        if not any(target.is_relative_to(root) for root in self._roots):
            raise CheckpointError(f"it is a link that leaves the folder (to {target})")
        return target


def _is_text(name: str) -> bool:
    """False for file names whose bytes are no UTF-8: they could be neither printed nor reported."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _allowed_roots(folder: Path) -> tuple[Path, ...]:
    """The folder itself; for a snapshot in a hub cache also that repository's blobs."""
    root = folder.resolve()
    repository = root.parent.parent
    if root.parent.name == "snapshots" and "--" in repository.name:
        return root, repository / "blobs"
    return (root,)


def _read_fully(descriptor: int, start: int, length: int, name: str) -> bytes:
    """pread in a loop: one call may return less, and never more than about 2 GiB."""
    parts: list[bytes] = []
    left = length
    while left:
        part = os.pread(descriptor, min(left, 1 << 30), start + length - left)
        if not part:
            raise CheckpointError(f"{name} ends before byte {start + length}")
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
