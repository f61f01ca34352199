"""`try` and `raise`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from draftproof.stacks.evaluation.code import Expression, ScopeKind, Signal, Statement
from draftproof.stacks.evaluation.errors import Raised
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import ClassKind, ClassValue, Instance
from draftproof.stacks.place import Place

_IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def compile_try(node: ast.Try, scope: ScopeKind) -> Statement:
    """`try` with all its parts."""
    body = scope.block(_with_questions(node))
    handlers = [_compile_handler(handler, scope) for handler in node.handlers]
    otherwise = scope.block(node.orelse) if node.orelse else None
    final = scope.block(node.finalbody) if node.finalbody else None

    def attempt(frame: Frame) -> Signal:
        try:
            signal = body(frame)
        except Raised as raised:
            for handler in handlers:
                handled = handler(frame, raised)
                if handled is not None:
                    return handled
            raise
        if signal is Signal.NEXT and otherwise is not None:
            return otherwise(frame)
        return signal

    if final is None:
        return attempt

    def run(frame: Frame) -> Signal:
        try:
            signal = attempt(frame)
        except Raised:
            ending = final(frame)
            if ending is Signal.NEXT:
                raise
            return ending
        returned = frame.returned
        ending = final(frame)
        if ending is Signal.NEXT:
            frame.returned = returned
            return signal
        return ending

    return run


def _with_questions(node: ast.Try) -> list[ast.stmt]:
    """The body, its imports marked when the handlers wait for one to fail."""
    names: set[str] = set()
    for handler in node.handlers:
        for part in ast.walk(handler.type) if handler.type is not None else ():
            if isinstance(part, (ast.Name, ast.Attribute)):
                names.add(part.id if isinstance(part, ast.Name) else part.attr)
        if handler.type is None:
            names.add("Exception")
    if not names & _IMPORT_ERRORS:
        return node.body
    return [_marked(statement) for statement in node.body]


class GuardedImport(ast.Import):
    """An import whose failure the code expects."""


class GuardedImportFrom(ast.ImportFrom):
    """A `from` import whose failure the code expects."""


def _marked(statement: ast.stmt) -> ast.stmt:
    if type(statement) is ast.Import:
        return ast.copy_location(GuardedImport(names=statement.names), statement)
    if type(statement) is ast.ImportFrom:
        made = GuardedImportFrom(module=statement.module, names=statement.names, level=statement.level)
        return ast.copy_location(made, statement)
    return statement


def _compile_handler(node: ast.ExceptHandler, scope: ScopeKind) -> Callable[[Frame, Raised], Signal | None]:
    """A closure that gives None when the handler is not for the exception."""
    wanted = scope.expression(node.type) if node.type is not None else None
    body, name, place = scope.block(node.body), node.name, scope.place(node)

    def handle(frame: Frame, raised: Raised) -> Signal | None:
        if wanted is not None and not _matches(frame, raised.value, wanted(frame), place):
            return None
        if name is not None:
            frame.names[name] = raised.value
        frame.handled.append(raised)
        try:
            return body(frame)
        finally:
            frame.handled.pop()
            if name is not None:
                frame.names.pop(name, None)

    return handle


def _matches(frame: Frame, error: Value, wanted: Value, place: Place) -> bool:
    if isinstance(wanted, tuple):
        return any(_matches(frame, error, part, place) for part in wanted)
    if isinstance(wanted, ClassValue) and wanted.name in ("Exception", "BaseException"):
        return True
    if isinstance(wanted, ClassValue) and isinstance(error, Instance):
        if error.cls.is_subclass(wanted):
            return True
        if error.cls.unknown_base is None:
            return False
    if isinstance(wanted, Unknown) and isinstance(error, Instance) and error.cls.module == "builtins":
        # A class from outside the tree is none of Python's own exception classes.
        return False
    run = frame.run
    return run.ask(f"{run.shown(error)} is a {run.shown(wanted)}", place)


def compile_raise(node: ast.Raise, scope: ScopeKind) -> Statement:
    """`raise`, with or without an exception."""
    place = scope.place(node)
    if node.exc is None:
        return lambda frame: _raise_again(frame, place)
    value: Expression = scope.expression(node.exc)
    cause = scope.expression(node.cause) if node.cause is not None else None

    def run(frame: Frame) -> Signal:
        error = value(frame)
        if isinstance(error, ClassValue) and error.kind is ClassKind.EXCEPTION:
            error = frame.run.call(error, (), {}, place)
        if not isinstance(error, Unknown) and not _is_exception(error):
            raise frame.run.error("TypeError", "exceptions must derive from BaseException", place)
        if cause is not None and isinstance(error, Instance):
            error.attributes["__cause__"] = cause(frame)
        raise Raised(error, place)

    return run


def _is_exception(value: Value) -> bool:
    return isinstance(value, Instance) and (
        value.cls.kind is ClassKind.EXCEPTION or value.cls.unknown_base is not None
    )


def _raise_again(frame: Frame, place: Place) -> Signal:
    around: Frame | None = frame
    while around is not None:
        if around.handled:
            raise around.handled[-1]
        around = around.parent
    raise frame.run.error("RuntimeError", "No active exception to reraise", place)
