"""What has been read from a tree, so that one reading can serve several kept facts.

`fact_store.remember` notes what a query consults. A reader that keeps what it has read (an evaluator with its
compiled modules) consults a file once and then never again; `RecordedReading.replay` consults all of it anew
on behalf of each query that the reader was used for.
"""

from __future__ import annotations

import ast

from draftproof.errors import SourceError
from draftproof.stacks.source import SourceTree


class RecordedReading(SourceTree):
    """As another tree; remembers which files, listings and questions it was asked for.

    Args:
        original: the other tree.
    """

    def __init__(self, original: SourceTree) -> None:
        super().__init__(original.root)
        self._original = original
        self._asked: dict[tuple[str, str], None] = {}

    def replay(self, tree: SourceTree) -> None:
        """Consults on another view of the same source everything that was consulted here."""
        for look, path in list(self._asked):
            try:
                if look == "has":
                    tree.has(path)
                elif look == "files":
                    tree.files(path)
                elif look == "walk":
                    tree.walk(path)
                else:
                    tree.digest(path)
            except SourceError:
                # The error is what is seen there; the view has noted the look.
                continue

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        self._asked["has", path] = None
        return self._original.has(path)

    def files(self, folder: str) -> tuple[str, ...]:
        """The .py files directly in a folder."""
        self._asked["files", folder] = None
        return self._original.files(folder)

    def walk(self, folder: str) -> tuple[str, ...]:
        """The .py files of a folder and everything below."""
        self._asked["walk", folder] = None
        return self._original.walk(folder)

    def text(self, path: str) -> str:
        """A file's text; errors as `SourceTree.text`."""
        self._asked["file", path] = None
        return self._original.text(path)

    def syntax(self, path: str) -> ast.Module:
        """A file's syntax tree; errors as `SourceTree.syntax`."""
        self._asked["file", path] = None
        return self._original.syntax(path)

    def digest(self, path: str) -> str:
        """SHA-256 of a file's bytes; errors as `SourceTree.digest`."""
        self._asked["file", path] = None
        return self._original.digest(path)
