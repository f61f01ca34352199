"""A real source tree with a few files changed, in memory: what a rule says must follow the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.source import SourceTree

Edit = Callable[[str], str]


def edited_tree(original: SourceTree, edits: Mapping[str, Edit | None]) -> SourceTree:
    """As another tree, but for the text of some files.

    Args:
        original: the other tree.
        edits: path -> what becomes of its text; None removes the file.
    """
    return OverlaidTree(
        original,
        {path: None if edit is None else edit(original.text(path)) for path, edit in edits.items()},
    )


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
