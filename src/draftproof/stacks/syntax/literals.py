"""Literal values, and what a module assigns to a name."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree
from draftproof.stacks.syntax.definitions import top_level


class _NotLiteral:
    """Type of `NOT_LITERAL`."""

    def __repr__(self) -> str:
        return "NOT_LITERAL"


NOT_LITERAL = _NotLiteral()
"""An expression that is no literal: its value needs the evaluator."""


@dataclass(frozen=True)
class TopLevelValue:
    """A name of a module.

    Attributes:
        name: of the module.
        value: assembled from all its assignments; `NOT_LITERAL` when one of them is no literal.
        places: of the assignments, in order.
    """

    name: str
    value: Any
    places: tuple[Place, ...]


def literal(node: ast.expr) -> Any:
    """The value of a literal: constants, signed numbers, containers of literals, `a + b`, `list(...)`.

    Strings that stand side by side are one; f-strings are no literals. A dict may have `**` parts only when
    these are literals too.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = literal(node.operand)
        if isinstance(value, (int, float)):
            return -value if isinstance(node.op, ast.USub) else value
        return NOT_LITERAL
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return _sequence(node)
    if isinstance(node, ast.Dict):
        return _mapping(node)
    if isinstance(node, ast.BinOp):
        return _combined(literal(node.left), node.op, literal(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _converted(node.func.id, node.args)
    return NOT_LITERAL


def _sequence(node: ast.List | ast.Tuple | ast.Set) -> Any:
    items: list[Any] = []
    for element in node.elts:
        value = literal(element.value if isinstance(element, ast.Starred) else element)
        if value is NOT_LITERAL:
            return NOT_LITERAL
        if not isinstance(element, ast.Starred):
            items.append(value)
        elif isinstance(value, (list, tuple, set, frozenset, dict)):
            items.extend(value)
        else:
            return NOT_LITERAL
    try:
        return {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)](items)
    except TypeError:
        return NOT_LITERAL


def _mapping(node: ast.Dict) -> Any:
    made: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        content = literal(value)
        if content is NOT_LITERAL:
            return NOT_LITERAL
        if key is None:
            if not isinstance(content, dict):
                return NOT_LITERAL
            made.update(content)
            continue
        name = literal(key)
        if name is NOT_LITERAL:
            return NOT_LITERAL
        try:
            made[name] = content
        except TypeError:
            return NOT_LITERAL
    return made


def _combined(left: Any, operator: ast.operator, right: Any) -> Any:
    kinds = (str, list, tuple) if isinstance(operator, ast.Add) else (dict, set, frozenset)
    if not isinstance(operator, (ast.Add, ast.BitOr)) or type(left) is not type(right):
        return NOT_LITERAL
    if not isinstance(left, kinds):
        return NOT_LITERAL
    return left + right if isinstance(operator, ast.Add) else left | right


def _converted(name: str, arguments: list[ast.expr]) -> Any:
    kinds = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}
    if name not in kinds or len(arguments) > 1:
        return NOT_LITERAL
    if not arguments:
        return kinds[name]()
    value = literal(arguments[0])
    if not isinstance(value, (list, tuple, set, frozenset, dict)):
        return NOT_LITERAL
    try:
        return kinds[name](value)
    except (TypeError, ValueError):
        return NOT_LITERAL


def assignments(tree: SourceTree, file: str, name: str) -> tuple[tuple[ast.expr, Place], ...]:
    """The expressions assigned to a module's name by `=`, `: T =` or `+=`, with their places, in order."""
    found = []
    for node in top_level(tree.syntax(file).body):
        value = _assigned(node, name)
        if value is not None:
            found.append((value, Place(file, node.lineno)))
    return tuple(found)


def _assigned(node: ast.stmt, name: str) -> ast.expr | None:
    if isinstance(node, ast.Assign):
        if any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
            return node.value
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and isinstance(node.target, ast.Name):
        return node.value if node.target.id == name else None
    return None


def top_level_value(tree: SourceTree, file: str, name: str) -> TopLevelValue | None:
    """The value that a module's assignments give to a name; None when it never assigns it."""
    places: list[Place] = []
    value: Any = NOT_LITERAL
    for node in top_level(tree.syntax(file).body):
        assigned = _assigned(node, name)
        if assigned is None:
            continue
        content = literal(assigned)
        if isinstance(node, ast.AugAssign):
            content = _combined(value, node.op, content) if value is not NOT_LITERAL else NOT_LITERAL
        value = content
        places.append(Place(file, node.lineno))
    return TopLevelValue(name, value, tuple(places)) if places else None
