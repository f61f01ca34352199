"""The `match` statement."""

from __future__ import annotations

import ast
from collections.abc import Callable

from draftproof.stacks.evaluation import operators
from draftproof.stacks.evaluation.code import ScopeKind, Signal, Statement
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.type_checks import is_instance
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import unwrapped

Test = Callable[[Frame, Value], bool]


def compile_match(node: ast.Match, scope: ScopeKind) -> Statement:
    """`match subject:` with literal, name, sequence, mapping, class and alternative patterns."""
    subject, place = scope.expression(node.subject), scope.place(node)
    cases = [
        (
            _compile_pattern(case.pattern, scope),
            None if case.guard is None else scope.expression(case.guard),
            scope.block(case.body),
        )
        for case in node.cases
    ]

    def run(frame: Frame) -> Signal:
        value = subject(frame)
        for test, guard, body in cases:
            if test(frame, value) and (guard is None or frame.run.truth(guard(frame), place)):
                return body(frame)
        return Signal.NEXT

    return run


def _compile_pattern(node: ast.pattern, scope: ScopeKind) -> Test:
    place = scope.place(node)
    if isinstance(node, ast.MatchValue):
        wanted = scope.expression(node.value)
        return lambda frame, value: frame.run.truth(frame.run.equal(value, wanted(frame), place), place)
    if isinstance(node, ast.MatchSingleton):
        constant = node.value
        return lambda frame, value: frame.run.truth(
            operators.compare(frame.run, "is", value, constant, place), place
        )
    if isinstance(node, ast.MatchOr):
        options = [_compile_pattern(part, scope) for part in node.patterns]
        return lambda frame, value: any(option(frame, value) for option in options)
    if isinstance(node, ast.MatchAs):
        return _capture(node, scope)
    if isinstance(node, ast.MatchSequence):
        return _sequence(node, scope)
    if isinstance(node, ast.MatchMapping):
        return _mapping(node, scope)
    if isinstance(node, ast.MatchClass):
        return _class(node, scope)

    def unsupported(frame: Frame, value: Value) -> bool:
        raise frame.run.refused(f"the pattern {type(node).__name__}", place)

    return unsupported


def _capture(node: ast.MatchAs, scope: ScopeKind) -> Test:
    inner = None if node.pattern is None else _compile_pattern(node.pattern, scope)
    name = node.name

    def test(frame: Frame, value: Value) -> bool:
        if inner is not None and not inner(frame, value):
            return False
        if name is not None:
            frame.names[name] = value
        return True

    return test


def _sequence(node: ast.MatchSequence, scope: ScopeKind) -> Test:
    place = scope.place(node)
    starred = next((i for i, part in enumerate(node.patterns) if isinstance(part, ast.MatchStar)), None)
    tests = [
        None if isinstance(part, ast.MatchStar) else _compile_pattern(part, scope) for part in node.patterns
    ]
    star = node.patterns[starred] if starred is not None else None
    star_name = star.name if isinstance(star, ast.MatchStar) else None

    def test(frame: Frame, value: Value) -> bool:
        value = unwrapped(value)
        if isinstance(value, Unknown):
            raise frame.run.refused(f"a pattern on the unknown {frame.run.shown(value)}", place)
        if not isinstance(value, (list, tuple)):
            return False
        if starred is None:
            return len(value) == len(tests) and _all(frame, tests, list(value))
        after = len(tests) - starred - 1
        if len(value) < len(tests) - 1:
            return False
        head, tail = list(value[:starred]), list(value[len(value) - after :])
        if not _all(frame, tests[:starred], head) or not _all(frame, tests[starred + 1 :], tail):
            return False
        if star_name is not None:
            frame.names[star_name] = list(value[starred : len(value) - after])
        return True

    return test


def _all(frame: Frame, tests: list[Test | None], values: list[Value]) -> bool:
    return all(test is None or test(frame, value) for test, value in zip(tests, values, strict=True))


def _mapping(node: ast.MatchMapping, scope: ScopeKind) -> Test:
    place = scope.place(node)
    entries = [
        (scope.expression(key), _compile_pattern(part, scope))
        for key, part in zip(node.keys, node.patterns, strict=True)
    ]

    def test(frame: Frame, value: Value) -> bool:
        value = unwrapped(value)
        if isinstance(value, Unknown) or node.rest is not None:
            raise frame.run.refused("a mapping pattern of this form", place)
        if not isinstance(value, dict):
            return False
        for key, part in entries:
            wanted = key(frame)
            if wanted not in value or not part(frame, value[wanted]):
                return False
        return True

    return test


def _class(node: ast.MatchClass, scope: ScopeKind) -> Test:
    cls, place = scope.expression(node.cls), scope.place(node)
    named = [
        (name, _compile_pattern(part, scope))
        for name, part in zip(node.kwd_attrs, node.kwd_patterns, strict=True)
    ]
    has_positional = bool(node.patterns)

    def test(frame: Frame, value: Value) -> bool:
        if has_positional:
            raise frame.run.refused("a class pattern with positions", place)
        run = frame.run
        if not run.truth(is_instance(run, value, cls(frame), place), place):
            return False
        return all(part(frame, run.attribute(value, name, place)) for name, part in named)

    return test
