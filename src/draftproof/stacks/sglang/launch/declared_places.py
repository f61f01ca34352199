"""Where a decision of SGLang's newer resolution stands: it names the function that made it, not the line."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache

from draftproof.errors import SourceError
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree

FOLDER = "sglang/srt/arg_groups"
_FUNCTION = re.compile(r"[A-Za-z_]\w*")


def declared_place(tree: SourceTree, source: object, field: str) -> Place | None:
    """The line of a function that decides about a field.

    Args:
        tree: the source.
        source: what the decision is signed with: the function's name, perhaps with a remark after a dot.
        field: the field.
    """
    if not isinstance(source, str):
        return None
    match = _FUNCTION.match(source)
    if match is None:
        return None
    for name in (match.group(), match.group().lstrip("_")):
        for file in tree.containing(FOLDER, f"def {name}("):
            place = _in_file(tree, file, name, field)
            if place is not None:
                return place
    return None


def _in_file(tree: SourceTree, file: str, name: str, field: str) -> Place | None:
    try:
        module = tree.syntax(file)
    except SourceError:
        return None
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return Place(file, _line(node, field))
    return None


def _line(function: ast.FunctionDef, field: str) -> int:
    """Where the function names the field that it decides about; its own line when it does so nowhere."""
    return _first_lines(function).get(field, function.lineno)


@lru_cache(maxsize=512)
def _first_lines(function: ast.FunctionDef) -> Mapping[str, int]:
    """Name of a keyword, or text of a literal -> the first line with it; a function decides many fields."""
    lines: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.keyword) and node.arg is not None:
            named, line = node.arg, node.value.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named, line = node.value, node.lineno
        else:
            continue
        lines[named] = min(line, lines.get(named, line))
    return lines
