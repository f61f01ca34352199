"""Lists, tuples, sets, dicts and f-strings compiled to closures."""

from __future__ import annotations

import ast
from collections.abc import Callable

from draftproof.stacks.evaluation import assignment, render
from draftproof.stacks.evaluation.code import Expression, ScopeKind
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.unknowns import Value, lose_contents


def _elements(node: ast.List | ast.Tuple | ast.Set, scope: ScopeKind) -> Callable[[Frame], list[Value]]:
    place = scope.place(node)
    parts = [
        (
            isinstance(part, ast.Starred),
            scope.expression(part.value if isinstance(part, ast.Starred) else part),
        )
        for part in node.elts
    ]
    if not any(is_starred for is_starred, _ in parts):
        plain = [part for _, part in parts]
        return lambda frame: [part(frame) for part in plain]

    def gather(frame: Frame) -> list[Value]:
        values: list[Value] = []
        for is_starred, part in parts:
            value = part(frame)
            if is_starred:
                values.extend(frame.run.items(value, place))
            else:
                values.append(value)
        return values

    return gather


def compile_list(node: ast.List, scope: ScopeKind) -> Expression:
    """`[a, *b]`."""
    return _elements(node, scope)


def compile_tuple(node: ast.Tuple, scope: ScopeKind) -> Expression:
    """`(a, *b)`."""
    elements = _elements(node, scope)
    return lambda frame: tuple(elements(frame))


def compile_set(node: ast.Set, scope: ScopeKind) -> Expression:
    """`{a, *b}`."""
    elements, place = _elements(node, scope), scope.place(node)
    return lambda frame: assignment.make_set(frame.run, elements(frame), place)


def compile_dict(node: ast.Dict, scope: ScopeKind) -> Expression:
    """`{k: v, **m}`."""
    parts = [
        (None if key is None else scope.expression(key), scope.expression(value))
        for key, value in zip(node.keys, node.values, strict=True)
    ]
    place = scope.place(node)

    def make(frame: Frame) -> Value:
        made: dict[Value, Value] = {}
        for key, part in parts:
            if key is not None:
                wanted = key(frame)
                assignment.set_in_dict(frame.run, made, wanted, part(frame), place)
                continue
            content = assignment.mapping_content(frame.run, part(frame), place)
            if content is None:
                lose_contents(made)
            else:
                for name, value in content.items():
                    assignment.set_in_dict(frame.run, made, name, value, place)
        return made

    return make


def compile_formatted(node: ast.JoinedStr, scope: ScopeKind) -> Expression:
    """An f-string."""
    parts = [_formatted_part(part, scope) for part in node.values]
    place = scope.place(node)
    return lambda frame: render.joined(frame.run, [part(frame) for part in parts], place)


def _formatted_part(node: ast.expr, scope: ScopeKind) -> Expression:
    if not isinstance(node, ast.FormattedValue):
        return scope.expression(node)
    value, place = scope.expression(node.value), scope.place(node)
    specification = scope.expression(node.format_spec) if node.format_spec is not None else None
    conversion = "" if node.conversion < 0 else chr(node.conversion)

    def make(frame: Frame) -> Value:
        spec = None if specification is None else specification(frame)
        return render.formatted(frame.run, value(frame), conversion, "" if spec is None else spec, place)

    return make
