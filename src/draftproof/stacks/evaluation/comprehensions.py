"""Comprehensions and generator expressions, run to their end at once."""

from __future__ import annotations

import ast
from collections.abc import Callable

from draftproof.stacks.evaluation.assignment import compile_target, make_set, set_in_dict
from draftproof.stacks.evaluation.code import Expression, ScopeKind
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.unknowns import Value
from draftproof.stacks.place import Place

Body = Callable[[Frame], None]


def compile_list(node: ast.ListComp, scope: ScopeKind) -> Expression:
    """`[x for ...]`."""
    return _collected(node, node.elt, scope, lambda frame, items: items)


def compile_set(node: ast.SetComp, scope: ScopeKind) -> Expression:
    """`{x for ...}`."""
    place = scope.place(node)
    return _collected(node, node.elt, scope, lambda frame, items: make_set(frame.run, items, place))


def compile_generator(node: ast.GeneratorExp, scope: ScopeKind) -> Expression:
    """`(x for ...)`: an iterator over values made already."""
    return _collected(node, node.elt, scope, lambda frame, items: iter(items))


def compile_dict(node: ast.DictComp, scope: ScopeKind) -> Expression:
    """`{k: v for ...}`."""
    inner = _inner_scope(node.generators, scope)
    key, value, place = inner.expression(node.key), inner.expression(node.value), scope.place(node)
    loops = _compile_loops(node.generators, scope, inner)

    def make(frame: Frame) -> Value:
        made: dict[Value, Value] = {}
        loops(frame, lambda at: set_in_dict(at.run, made, key(at), value(at), place))
        return made

    return make


def add_yielded(frame: Frame, value: Value, place: Place) -> None:
    """What a generator function yields is collected."""
    if frame.yielded is None:
        frame.yielded = []
    frame.yielded.append(value)
    frame.run.require_size(len(frame.yielded), place)


def _collected(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp,
    element: ast.expr,
    scope: ScopeKind,
    finish: Callable[[Frame, list[Value]], Value],
) -> Expression:
    inner = _inner_scope(node.generators, scope)
    part = inner.expression(element)
    loops = _compile_loops(node.generators, scope, inner)

    def make(frame: Frame) -> Value:
        items: list[Value] = []
        loops(frame, lambda at: items.append(part(at)))
        return finish(frame, items)

    return make


def _inner_scope(generators: list[ast.comprehension], scope: ScopeKind) -> ScopeKind:
    targets = frozenset(
        node.id
        for generator in generators
        for node in ast.walk(generator.target)
        if isinstance(node, ast.Name)
    )
    return scope.inside_function(targets, frozenset())


def _compile_loops(
    generators: list[ast.comprehension], scope: ScopeKind, inner: ScopeKind
) -> Callable[[Frame, Body], None]:
    first = scope.expression(generators[0].iter)
    levels = [
        (
            first if position == 0 else inner.expression(generator.iter),
            compile_target(generator.target, inner),
            [(inner.expression(test), scope.place(test)) for test in generator.ifs],
            scope.place(generator.iter),
        )
        for position, generator in enumerate(generators)
    ]

    def level(at: Frame, outer: Frame, number: int, body: Body) -> None:
        iterable, store, tests, place = levels[number]
        for item in at.run.items(iterable(outer if number == 0 else at), place):
            at.run.tick(place)
            store(at, item)
            if all(at.run.truth(test(at), where) for test, where in tests):
                if number + 1 < len(levels):
                    level(at, outer, number + 1, body)
                else:
                    body(at)

    def loops(frame: Frame, body: Body) -> None:
        parent = frame.parent if scope.is_class_body else frame
        at = Frame(frame.run, frame.module, {}, parent, frame.function)
        at.limit = frame.limit
        level(at, frame, 0, body)

    return loops
