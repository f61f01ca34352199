"""A source tree with files of our own beside the stack's, for what evaluated code needs to stand on."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping

from draftproof.errors import SourceError
from draftproof.stacks.source import SourceTree


class OverlaidTree(SourceTree):
    """As another tree, with some files added, replaced or removed. Its files are parsed once for both.

    Args:
        original: the other tree.
        files: path -> text; None removes a file.
    """

    def __init__(self, original: SourceTree, files: Mapping[str, str | None]) -> None:
        super().__init__(original.root)
        self._original = original
        self._overlaid = dict(files)

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        return self._overlaid[path] is not None if path in self._overlaid else self._original.has(path)

    def files(self, folder: str) -> tuple[str, ...]:
        """The .py files directly in a folder, without those that are removed or added."""
        return tuple(path for path in self._original.files(folder) if self.has(path))

    def walk(self, folder: str) -> tuple[str, ...]:
        """The .py files of a folder and everything below, without those that are removed or added."""
        return tuple(path for path in self._original.walk(folder) if self.has(path))

    def text(self, path: str) -> str:
        """A file's text; errors as `SourceTree.text`."""
        return super().text(path) if path in self._overlaid else self._original.text(path)

    def syntax(self, path: str) -> ast.Module:
        """A file's syntax tree; errors as `SourceTree.syntax`."""
        return super().syntax(path) if path in self._overlaid else self._original.syntax(path)

    def digest(self, path: str) -> str:
        """SHA-256 of a file's bytes; errors as `SourceTree.digest`."""
        return super().digest(path) if path in self._overlaid else self._original.digest(path)

    def containing(self, folder: str, word: str) -> tuple[str, ...]:
        """The .py files of a folder and everything below that hold a word; added files are not searched."""
        found = {path for path in self._original.containing(folder, word) if path not in self._overlaid}
        replaced = set(self._overlaid) & set(self._original.walk(folder))
        return tuple(sorted(found | {path for path in replaced if word in (self._overlaid[path] or "")}))

    def folder_digest(self, folder: str) -> str:
        """SHA-256 that changes with the folder's files and with what lies over the tree."""
        return self._over(self._original.folder_digest(folder))

    def folder_state(self, folder: str) -> str:
        """As `folder_digest`, by sizes and times."""
        return self._over(self._original.folder_state(folder))

    def _over(self, digest: str) -> str:
        return hashlib.sha256(repr((digest, sorted(self._overlaid.items()))).encode()).hexdigest()

    def _content(self, path: str) -> bytes:
        if path not in self._overlaid:
            return self._original._content(path)
        text = self._overlaid[path]
        if text is None:
            raise SourceError(f"there is no {path}", path)
        return text.encode()
