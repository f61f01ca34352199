"""A stack's source as files: read, listed, searched and parsed, never imported.

Everything that is known about a stack is asked of a `SourceTree`, so that a cached answer knows which files
it depends on (`fact_store`). One broken file is an error about that file and no other.
"""

from __future__ import annotations

import ast
import hashlib
import os
import stat
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from draftproof.errors import SourceError

MAX_FILE_BYTES = 4 << 20
"""The largest file of the stacks seen so far has 0.35 MB."""
MAX_FILES = 50_000
"""In one folder with everything below; the stacks have up to 4,719."""
MAX_FOLDERS_DEEP = 32
MAX_NESTING = 150
"""Levels of a syntax tree; the stacks have up to 39. Recursive readers stay clear of Python's own limit."""

_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
"""Kinds of syntax that have no children."""

_PARSING = threading.Lock()
"""`warnings.catch_warnings` changes the state of the whole process, so only one thread parses at a time."""

T = TypeVar("T")


class SourceTree:
    """An unchanging view on a folder that holds the folder of a package ("sglang/", "vllm/").

    Paths are relative to it, with "/": "sglang/srt/models/qwen3_5_mtp.py". A file is read, hashed and parsed
    once; what was read stays as it was. Safe to use from several threads.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real_root = os.path.realpath(root)
        self._inside = f"{self._real_root.rstrip('/')}/"
        self._contents = _Memory[bytes]()
        self._texts = _Memory[str]()
        self._modules = _Memory[ast.Module]()
        self._digests = _Memory[str]()
        self._listings = _Memory[tuple[str, ...]]()
        self._walks = _Memory[tuple[str, ...]]()
        self._folder_digests = _Memory[str]()
        self._folder_states = _Memory[str]()
        self._real_folders = _Memory[str]()

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def has(self, path: str) -> bool:
        """Whether there is a regular file of that path inside the root."""
        try:
            self._locate(path)
        except SourceError:
            return False
        return True

    def files(self, folder: str) -> tuple[str, ...]:
        """The .py files directly in a folder, sorted; none when the folder is not there."""
        return self._listings.get(folder, lambda: self._scan(folder, 0))

    def walk(self, folder: str) -> tuple[str, ...]:
        """The .py files of a folder and everything below, sorted; none when the folder is not there.

        Links to folders are not followed, and hidden folders are left out.

        Raises:
            SourceError: the path is no relative path, or there is an absurd number of files.
        """
        return self._walks.get(folder, lambda: self._scan(folder, MAX_FOLDERS_DEEP))

    def text(self, path: str) -> str:
        """A file's text, without the byte order mark that some have.

        Raises:
            SourceError: it is missing, not inside the root, larger than `MAX_FILE_BYTES`, or not UTF-8.
        """
        return self._texts.get(path, lambda: _decode(path, self._content(path)))

    def syntax(self, path: str) -> ast.Module:
        """A file's syntax tree. It is shared: readers must not change it.

        Raises:
            SourceError: as `text`; or it is no Python that this Python understands, or is nested absurdly.
        """
        return self._modules.get(path, lambda: _parse(path, self.text(path)))

    def digest(self, path: str) -> str:
        """SHA-256 of a file's bytes, in hex.

        Raises:
            SourceError: it is missing, not inside the root, or larger than `MAX_FILE_BYTES`.
        """
        return self._digests.get(path, lambda: hashlib.sha256(self._content(path)).hexdigest())

    def folder_digest(self, folder: str) -> str:
        """SHA-256 over the paths and contents of all .py files of a folder and everything below, in hex."""
        return self._folder_digests.get(folder, lambda: self._hash_folder(folder))

    def folder_state(self, folder: str) -> str:
        """SHA-256 over the paths, sizes and modification times of what `folder_digest` reads: much faster."""
        return self._folder_states.get(folder, lambda: self._state_of(folder))

    def _state_of(self, folder: str) -> str:
        total = hashlib.sha256()
        for path in self.walk(folder):
            with suppress(OSError):
                status = Path(self._real_root, path).stat()
                total.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        return total.hexdigest()

    def containing(self, folder: str, word: str) -> tuple[str, ...]:
        """The .py files of a folder and everything below whose bytes hold a word, sorted; nothing is parsed.

        Files that cannot be read count as not holding it.
        """
        wanted = word.encode()
        return tuple(path for path in self.walk(folder) if wanted in (self._readable(path) or b""))

    def _content(self, path: str) -> bytes:
        return self._contents.get(path, lambda: _read(path, self._locate(path)))

    def _readable(self, path: str) -> bytes | None:
        try:
            return self._content(path)
        except SourceError:
            return None

    def _locate(self, path: str) -> str:
        """The file on this machine, links resolved; SourceError unless it is a regular one in the root.

        Paths are strings here and in listings: kept answers look at thousands of files each time.
        """
        _require_relative(path)
        folder, _, name = path.rpartition("/")
        # Folders are resolved once: rules look for thousands of files that may or may not be there.
        real = self._real_folders.get(folder, lambda: os.path.realpath(f"{self._inside}{folder}"))
        target = f"{real}/{name}"
        self._require_inside(path, real)
        try:
            status = os.lstat(target)
            if stat.S_ISLNK(status.st_mode):
                target = os.path.realpath(target)
                self._require_inside(path, target)
                status = os.lstat(target)
        except OSError as error:
            raise SourceError(
                f"{self._root} has no readable {path} ({error.strerror or error})", path
            ) from error
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(f"{path} in {self._root} is not a regular file", path)
        return target

    def _scan(self, folder: str, levels: int) -> tuple[str, ...]:
        """The .py files of a folder, and of `levels` levels of folders below it."""
        _require_relative(folder)
        start = os.path.realpath(f"{self._inside}{folder}")
        self._require_inside(folder, start)
        found: list[str] = []
        # Rules may write "folder/" and "folder//below": what is found has the shortest form.
        pending = [(str(PurePosixPath(folder)), start, levels)]
        while pending:
            name, path, left = pending.pop()
            for entry in _entries(path):
                below = entry.name if name == "." else f"{name}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if left and not entry.name.startswith((".", "__pycache__")):
                        pending.append((below, entry.path, left - 1))
                elif entry.name.endswith(".py"):
                    found.append(below)
            if len(found) > MAX_FILES:
                raise SourceError(f"{folder} in {self._root} holds more than {MAX_FILES} files", folder)
        return tuple(sorted(found))

    def _require_inside(self, path: str, real: str) -> None:
        if real != self._real_root and not real.startswith(self._inside):
            raise SourceError(f"{path} is a link that leaves {self._root} (to {real})", path)

    def _hash_folder(self, folder: str) -> str:
        total = hashlib.sha256()
        for path in self.walk(folder):
            content = self._readable(path)
            state = "unreadable" if content is None else self.digest(path)
            total.update(f"{path}\0{state}\n".encode())
        return total.hexdigest()


class _Memory(Generic[T]):
    """What was made for a path: made once, also when several threads ask for it at the same time."""

    def __init__(self) -> None:
        self._made: dict[str, T] = {}
        self._lock = threading.RLock()

    def get(self, path: str, make: Callable[[], T]) -> T:
        """What was made for the path; `make` makes it the first time, and again after it raised."""
        made = self._made.get(path)
        if made is not None:
            return made
        with self._lock:
            if path not in self._made:
                self._made[path] = make()
            return self._made[path]


def _require_relative(path: str) -> None:
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path:
        raise SourceError(f"{path!r} is not a relative path inside a source tree", path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """A folder's entries whose names are valid text; none when it is not there or cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if _is_text(entry.name)]
    except OSError:
        return []


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read(path: str, file: str) -> bytes:
    """The whole file. It is read a byte past the limit: its size may change between a look and the read."""
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}", path) from error
    if len(content) > MAX_FILE_BYTES:
        raise SourceError(f"{path} has more than {MAX_FILE_BYTES} bytes, too many for a source file", path)
    return content


def _decode(path: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SourceError(f"{path}:{line} is not UTF-8 text", path, line) from error


def _parse(path: str, text: str) -> ast.Module:
    try:
        with _PARSING, warnings.catch_warnings():
            # Odd escapes in the stack's strings are its own affair, and no error even where warnings are.
            warnings.simplefilter("ignore")
            module = ast.parse(text, filename=path)
    except SyntaxError as error:
        line = error.lineno or 1
        raise SourceError(f"{path}:{line} is no valid Python: {error.msg}", path, line) from error
    except (ValueError, MemoryError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise SourceError(f"{path} cannot be parsed: {reason}", path) from error
    _require_shallow(path, module)
    return module


def _require_shallow(path: str, module: ast.Module) -> None:
    """Level by level and not recursively, since what is looked for would end the recursion."""
    level: list[ast.AST] = [module]
    for _ in range(MAX_NESTING):
        level = _below(level)
        if not level:
            return
    line = getattr(level[0], "lineno", 0)
    raise SourceError(f"{path}:{line} is nested more than {MAX_NESTING} levels deep", path, line)


def _below(level: list[ast.AST]) -> list[ast.AST]:
    """The children of all nodes, without those that never have any. It runs over every node of every file."""
    found: list[ast.AST] = []
    for node in level:
        for value in node.__dict__.values():
            if isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                found.append(value)
    return found
