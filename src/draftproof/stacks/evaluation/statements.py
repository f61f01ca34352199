"""Statements compiled to closures."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from draftproof.stacks.evaluation import imports, operators
from draftproof.stacks.evaluation.assignment import compile_deletion, compile_target
from draftproof.stacks.evaluation.classes import compile_class
from draftproof.stacks.evaluation.code import ScopeKind, Signal, Statement, function_code
from draftproof.stacks.evaluation.errors import Raised
from draftproof.stacks.evaluation.expressions import binary_symbol
from draftproof.stacks.evaluation.functions import make_function
from draftproof.stacks.evaluation.matching import compile_match
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.trying import (
    GuardedImport,
    GuardedImportFrom,
    compile_raise,
    compile_try,
)
from draftproof.stacks.evaluation.unknowns import Unknown, Value, has_lost_contents

NEXT, BREAK, CONTINUE, RETURN = Signal.NEXT, Signal.BREAK, Signal.CONTINUE, Signal.RETURN


def compile_block(nodes: Sequence[ast.stmt], scope: ScopeKind) -> Statement:
    """A closure that runs statements until one of them ends the block."""
    parts = [(scope.place(node), compile_statement(node, scope)) for node in nodes]
    if len(parts) == 1:
        place, single = parts[0]

        def one(frame: Frame) -> Signal:
            frame.run.tick(place)
            return single(frame)

        return one

    def block(frame: Frame) -> Signal:
        run = frame.run
        for place, statement in parts:
            run.tick(place)
            signal = statement(frame)
            if signal is not NEXT:
                return signal
        return NEXT

    return block


def compile_statement(node: ast.stmt, scope: ScopeKind) -> Statement:
    """A closure that runs one statement."""
    compiler = _COMPILERS.get(type(node))
    if compiler is None:
        place, what = scope.place(node), type(node).__name__

        def unsupported(frame: Frame) -> Signal:
            raise frame.run.refused(f"the statement {what}", place)

        return unsupported
    return compiler(node, scope)


def _pass(node: ast.stmt, scope: ScopeKind) -> Statement:
    return lambda frame: NEXT


def _expression(node: ast.Expr, scope: ScopeKind) -> Statement:
    if isinstance(node.value, ast.Constant):
        return lambda frame: NEXT
    value = scope.expression(node.value)

    def run(frame: Frame) -> Signal:
        value(frame)
        return NEXT

    return run


def _assign(node: ast.Assign, scope: ScopeKind) -> Statement:
    value = scope.expression(node.value)
    stores = [compile_target(target, scope) for target in node.targets]

    def run(frame: Frame) -> Signal:
        result = value(frame)
        for store in stores:
            store(frame, result)
        return NEXT

    return run


def _annotated(node: ast.AnnAssign, scope: ScopeKind) -> Statement:
    if node.value is None:
        return lambda frame: NEXT
    value, store = scope.expression(node.value), compile_target(node.target, scope)

    def run(frame: Frame) -> Signal:
        store(frame, value(frame))
        return NEXT

    return run


def _augmented(node: ast.AugAssign, scope: ScopeKind) -> Statement:
    place, symbol = scope.place(node), binary_symbol(node.op)
    readable = _as_read(node.target)
    current, right = scope.expression(readable), scope.expression(node.value)
    store = compile_target(node.target, scope)

    def run(frame: Frame) -> Signal:
        left = current(frame)
        store(frame, operators.in_place(frame.run, symbol, left, right(frame), place))
        return NEXT

    return run


def _as_read(target: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    read: ast.expr
    if isinstance(target, ast.Name):
        read = ast.Name(target.id, ast.Load())
    elif isinstance(target, ast.Attribute):
        read = ast.Attribute(target.value, target.attr, ast.Load())
    else:
        read = ast.Subscript(target.value, target.slice, ast.Load())
    return ast.copy_location(read, target)


def _if(node: ast.If, scope: ScopeKind) -> Statement:
    test, place = scope.expression(node.test), scope.place(node.test)
    body = scope.block(node.body)
    otherwise = scope.block(node.orelse) if node.orelse else None

    def run(frame: Frame) -> Signal:
        if frame.run.truth(test(frame), place):
            return body(frame)
        return NEXT if otherwise is None else otherwise(frame)

    return run


def _for(node: ast.For, scope: ScopeKind) -> Statement:
    iterable, place = scope.expression(node.iter), scope.place(node)
    store, body = compile_target(node.target, scope), scope.block(node.body)
    otherwise = scope.block(node.orelse) if node.orelse else None

    def run(frame: Frame) -> Signal:
        for item in frame.run.items(iterable(frame), place):
            frame.run.tick(place)
            store(frame, item)
            signal = body(frame)
            if signal is BREAK:
                return NEXT
            if signal is RETURN:
                return signal
        return NEXT if otherwise is None else otherwise(frame)

    return run


def _while(node: ast.While, scope: ScopeKind) -> Statement:
    test, place = scope.expression(node.test), scope.place(node)
    body = scope.block(node.body)
    otherwise = scope.block(node.orelse) if node.orelse else None

    def run(frame: Frame) -> Signal:
        seen: set[str] = set()
        while True:
            frame.run.tick(place)
            value = test(frame)
            if isinstance(value, Unknown) or has_lost_contents(value):
                name = frame.run.shown(value)
                if name in seen:
                    raise frame.run.refused(f"a loop that ends by an unknown value: {name}", place)
                seen.add(name)
            if not frame.run.truth(value, place):
                break
            signal = body(frame)
            if signal is BREAK:
                return NEXT
            if signal is RETURN:
                return signal
        return NEXT if otherwise is None else otherwise(frame)

    return run


def _break(node: ast.Break, scope: ScopeKind) -> Statement:
    return lambda frame: BREAK


def _continue(node: ast.Continue, scope: ScopeKind) -> Statement:
    return lambda frame: CONTINUE


def _return(node: ast.Return, scope: ScopeKind) -> Statement:
    value = scope.expression(node.value) if node.value is not None else None

    def run(frame: Frame) -> Signal:
        frame.returned = None if value is None else value(frame)
        return RETURN

    return run


def _assert(node: ast.Assert, scope: ScopeKind) -> Statement:
    test, place = scope.expression(node.test), scope.place(node)
    message = scope.expression(node.msg) if node.msg is not None else None

    def run(frame: Frame) -> Signal:
        if not frame.run.truth(test(frame), place):
            error = frame.run.new_instance(frame.run.exceptions["AssertionError"])
            error.attributes["args"] = () if message is None else (message(frame),)
            raise Raised(error, place)
        return NEXT

    return run


def _delete(node: ast.Delete, scope: ScopeKind) -> Statement:
    deletions = [compile_deletion(target, scope) for target in node.targets]

    def run(frame: Frame) -> Signal:
        for delete in deletions:
            delete(frame)
        return NEXT

    return run


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, scope: ScopeKind) -> Statement:
    make = make_function(function_code(node, scope), scope)
    name = ast.copy_location(ast.Name(node.name, ast.Store()), node)
    store = compile_target(name, scope)
    decorators = [(scope.expression(part), scope.place(part)) for part in node.decorator_list]

    def run(frame: Frame) -> Signal:
        # Decorators are evaluated from the top and applied from the bottom.
        applied = [(decorator(frame), place) for decorator, place in decorators]
        value: Value = make(frame)
        for decorator, place in reversed(applied):
            if isinstance(decorator, Unknown):
                continue
            decorated = frame.run.call(decorator, (value,), {}, place)
            value = value if isinstance(decorated, Unknown) else decorated
        store(frame, value)
        return NEXT

    return run


def _with(node: ast.With, scope: ScopeKind) -> Statement:
    entries = [
        (
            scope.expression(item.context_expr),
            None if item.optional_vars is None else compile_target(item.optional_vars, scope),
        )
        for item in node.items
    ]
    body, place = scope.block(node.body), scope.place(node)

    def enter(frame: Frame, number: int) -> Signal:
        if number == len(entries):
            return body(frame)
        make, store = entries[number]
        manager = make(frame)
        run = frame.run
        value = _entered(frame, manager)
        if store is not None:
            store(frame, value)
        leave = None
        if not isinstance(manager, Unknown) and not hasattr(manager, "__next__"):
            leave = run.attribute(manager, "__exit__", place)
        try:
            signal = enter(frame, number + 1)
        except Raised as raised:
            if leave is None:
                raise
            kind = getattr(raised.value, "cls", raised.value)
            if run.truth(run.call(leave, (kind, raised.value, None), {}, place), place):
                return NEXT
            raise
        if leave is not None:
            run.call(leave, (None, None, None), {}, place)
        return signal

    def _entered(frame: Frame, manager: Value) -> Value:
        if isinstance(manager, Unknown):
            return Unknown(f"{frame.run.shown(manager)}.__enter__()", place)
        if hasattr(manager, "__next__"):
            # A function with `yield` under @contextmanager: it ran to its end when it was called.
            return next(manager, None)
        method = frame.run.attribute(manager, "__enter__", place)
        return frame.run.call(method, (), {}, place)

    return lambda frame: enter(frame, 0)


_COMPILERS: dict[type[ast.stmt], Callable[[Any, ScopeKind], Statement]] = {
    ast.Pass: _pass,
    ast.Global: _pass,
    ast.Nonlocal: _pass,
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.If: _if,
    ast.For: _for,
    ast.While: _while,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.Return: _return,
    ast.Assert: _assert,
    ast.Delete: _delete,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: compile_class,
    ast.With: _with,
    ast.Raise: compile_raise,
    ast.Try: compile_try,
    ast.Import: imports.compile_import,
    ast.ImportFrom: imports.compile_import_from,
    GuardedImport: imports.compile_import,
    GuardedImportFrom: imports.compile_import_from,
    ast.Match: compile_match,
}
