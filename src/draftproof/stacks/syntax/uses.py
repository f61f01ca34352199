"""Calls, comparisons and string constants inside a piece of syntax."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.stacks.place import Place
from draftproof.stacks.syntax.literals import NOT_LITERAL, literal
from draftproof.stacks.syntax.names import dotted_name

_SYMBOLS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


@dataclass(frozen=True)
class FunctionCall:
    """A call.

    Attributes:
        name: of what is called, as written: "self.model.load_weights".
        node: its syntax tree.
        place: its line.
        keywords: the arguments by name; values that are no literals are `NOT_LITERAL`.
        is_statement: the call's value is thrown away.
    """

    name: str
    node: ast.Call
    place: Place
    keywords: Mapping[str, Any]
    is_statement: bool


@dataclass(frozen=True)
class AttributeComparison:
    """A comparison of an attribute or name with a literal.

    Attributes:
        subject: what is compared, as written: "self.quant_config.get_name()" without the call's brackets.
        symbol: "==", "in", ...
        value: the literal.
        place: its line.
    """

    subject: str
    symbol: str
    value: Any
    place: Place


def calls_of(file: str, node: ast.AST, name: str) -> tuple[FunctionCall, ...]:
    """The calls of a function inside a piece of syntax, by its full written name or the last part of it."""
    statements = {id(part.value) for part in ast.walk(node) if isinstance(part, ast.Expr)}
    found = []
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        called = dotted_name(part.func) or (part.func.attr if isinstance(part.func, ast.Attribute) else None)
        if called is not None and (called == name or called.endswith(f".{name}")):
            keywords = {entry.arg: literal(entry.value) for entry in part.keywords if entry.arg is not None}
            place = Place(file, part.lineno)
            found.append(FunctionCall(called, part, place, keywords, id(part) in statements))
    return tuple(sorted(found, key=lambda call: (call.node.lineno, call.node.col_offset)))


def attribute_comparisons(file: str, node: ast.AST, name: str) -> tuple[AttributeComparison, ...]:
    """Comparisons of a name, an attribute or a call's value, by its last part, with a literal."""
    found = []
    for part in ast.walk(node):
        if not isinstance(part, ast.Compare) or len(part.ops) != 1:
            continue
        for subject, other in ((part.left, part.comparators[0]), (part.comparators[0], part.left)):
            written = _subject(subject)
            value = literal(other)
            if written is None or value is NOT_LITERAL or written.rpartition(".")[2] != name:
                continue
            symbol = _SYMBOLS[type(part.ops[0])]
            found.append(AttributeComparison(written, symbol, value, Place(file, part.lineno)))
    return tuple(sorted(found, key=lambda entry: entry.place))


def _subject(node: ast.expr) -> str | None:
    return dotted_name(node.func if isinstance(node, ast.Call) else node)


def string_constants(file: str, node: ast.AST) -> tuple[tuple[str, Place], ...]:
    """The strings inside a piece of syntax, docstrings left out."""
    docstrings = {
        id(part.value)
        for part in ast.walk(node)
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
    }
    found = [
        (part.value, Place(file, part.lineno))
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and id(part) not in docstrings
    ]
    return tuple(sorted(found, key=lambda entry: (entry[1], entry[0])))
