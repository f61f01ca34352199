"""`import` statements."""

from __future__ import annotations

import ast

from draftproof.stacks.evaluation.assignment import Store, compile_target
from draftproof.stacks.evaluation.code import ScopeKind, Signal, Statement
from draftproof.stacks.evaluation.modules import ModuleValue, absolute_name
from draftproof.stacks.evaluation.scope import Frame
from draftproof.stacks.evaluation.trying import GuardedImport, GuardedImportFrom
from draftproof.stacks.evaluation.unknowns import Unknown, Value
from draftproof.stacks.evaluation.values import ABSENT
from draftproof.stacks.place import Place


def compile_import(node: ast.Import, scope: ScopeKind) -> Statement:
    """`import a.b as c, d`."""
    place = scope.place(node)
    is_guarded = isinstance(node, GuardedImport)
    entries: list[tuple[str, bool, Store]] = [
        (alias.name, alias.asname is not None, _store(alias.asname or alias.name.split(".")[0], node, scope))
        for alias in node.names
    ]

    def run(frame: Frame) -> Signal:
        for dotted, is_renamed, store in entries:
            module = import_module(frame, dotted, is_guarded, place)
            if not is_renamed and "." in dotted:
                module = import_module(frame, dotted.split(".")[0], False, place)
            store(frame, module)
        return Signal.NEXT

    return run


def compile_import_from(node: ast.ImportFrom, scope: ScopeKind) -> Statement:
    """`from a.b import c as d`; `*` is looked up when a name is asked for."""
    place = scope.place(node)
    is_guarded = isinstance(node, GuardedImportFrom)
    if node.names[0].name == "*":
        return lambda frame: Signal.NEXT
    entries = [(alias.name, _store(alias.asname or alias.name, node, scope)) for alias in node.names]

    def run(frame: Frame) -> Signal:
        dotted = absolute_name(frame.module.source, node.module, node.level)
        module = import_module(frame, dotted, is_guarded, place)
        for name, store in entries:
            store(frame, import_name(frame, module, dotted, name, place))
        return Signal.NEXT

    return run


def import_module(frame: Frame, dotted: str, is_guarded: bool, place: Place) -> Value:
    """A module by its full name.

    Args:
        frame: where the import stands.
        dotted: the name.
        is_guarded: the code expects that this may fail; for a module outside the tree it is a question.
        place: of the import.
    """
    run = frame.run
    module = run.module(dotted)
    if module is ABSENT:
        raise run.error("ModuleNotFoundError", f"No module named '{dotted}'", place)
    if is_guarded and isinstance(module, Unknown) and not run.ask(f"import {dotted}", place):
        raise run.error("ModuleNotFoundError", f"No module named '{dotted}'", place)
    return module


def import_name(frame: Frame, module: Value, dotted: str, name: str, place: Place) -> Value:
    """`from dotted import name`."""
    run = frame.run
    if isinstance(module, ModuleValue):
        value = module.lookup(name)
        if value is ABSENT and not module.source.statements:
            # A module of the standard library of which only a part is known.
            return run.attribute(Unknown(dotted, place), name, place)
        if value is ABSENT:
            message = f"cannot import name '{name}' from '{dotted}' ({module.source.file})"
            raise run.error("ImportError", message, place)
        return value
    return run.attribute(module, name, place)


def _store(name: str, node: ast.stmt, scope: ScopeKind) -> Store:
    return compile_target(ast.copy_location(ast.Name(name, ast.Store()), node), scope)
