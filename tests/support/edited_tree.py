"""A real source tree with a few files changed, in memory: what a rule says must follow the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from draftproof.errors import SourceError
from draftproof.stacks.source import SourceTree

Edit = Callable[[str], str]


class EditedTree(SourceTree):
    """As another tree, but for the text of some files. Files that stay are parsed once for both.

    Args:
        original: the other tree.
        edits: path -> what becomes of its text; None removes the file.
    """

    def __init__(self, original: SourceTree, edits: Mapping[str, Edit | None]) -> None:
        super().__init__(original.root)
        self._original = original
        self._edited = {
            path: None if edit is None else edit(original.text(path)) for path, edit in edits.items()
        }

    def has(self, path: str) -> bool:
        return self._edited[path] is not None if path in self._edited else self._original.has(path)

    def files(self, folder: str) -> tuple[str, ...]:
        return tuple(path for path in self._original.files(folder) if self.has(path))

    def walk(self, folder: str) -> tuple[str, ...]:
        return tuple(path for path in self._original.walk(folder) if self.has(path))

    def text(self, path: str) -> str:
        return super().text(path) if path in self._edited else self._original.text(path)

    def syntax(self, path: str) -> ast.Module:
        return super().syntax(path) if path in self._edited else self._original.syntax(path)

    def digest(self, path: str) -> str:
        return super().digest(path) if path in self._edited else self._original.digest(path)

    def _content(self, path: str) -> bytes:
        text = self._edited.get(path, "")
        if path not in self._edited:
            return super()._content(path)
        if text is None:
            raise SourceError(f"there is no {path}", path)
        return text.encode()


def replaced(old: str, new: str) -> Edit:
    """Puts `new` in the place of `old`, which must be there."""

    def edit(text: str) -> str:
        assert old in text, f"the source no longer holds {old!r}"
        return text.replace(old, new)

    return edit


def substituted(pattern: str, new: str) -> Edit:
    """As `replaced`, with a regular expression (dots match line ends)."""

    def edit(text: str) -> str:
        result, count = re.subn(pattern, new, text, flags=re.DOTALL | re.MULTILINE)
        assert count, f"the source no longer matches {pattern!r}"
        return result

    return edit


def method_replaced(name: str, body: str, of_class: str = "") -> Edit:
    """Puts another body into a function, in the class of that name or wherever it is first."""

    def edit(text: str) -> str:
        module = ast.parse(text)
        scope: ast.AST = module
        if of_class:
            scope = next(
                node for node in ast.walk(module) if isinstance(node, ast.ClassDef) and node.name == of_class
            )
        function = next(
            node for node in ast.walk(scope) if isinstance(node, ast.FunctionDef) and node.name == name
        )
        lines = text.splitlines()
        first, last = function.body[0].lineno - 1, function.end_lineno
        indent = " " * function.body[0].col_offset
        inserted = [indent + line for line in body.splitlines()]
        return "\n".join([*lines[:first], *inserted, *lines[last:]]) + "\n"

    return edit


def both(*edits: Edit) -> Edit:
    """One after the other."""

    def edit(text: str) -> str:
        for one in edits:
            text = one(text)
        return text

    return edit
