"""What the class of a head does: no stubs, and a forward that reads the target's hidden states."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from draftproof.errors import SourceError
from draftproof.stacks.classes import (
    ClassSource,
    MethodSource,
    class_order,
    find_class,
    find_method,
    is_stub,
)
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.source import SourceTree

_METHODS = ("__init__", "forward", "load_weights")
_HIDDEN = ("spec_info", "hidden_states")


def implementation(tree: SourceTree, cls: ClassSource) -> Reading[str]:
    """What the class does in building, forward and weight loading; absent when a part is a stub.

    A method that only calls the one of its base is judged by the base's.
    """
    looked = f"looked for {', '.join(_METHODS)} of {cls.name}, and for spec_info.hidden_states in its forward"
    try:
        methods = {name: effective_method(tree, cls, name) for name in _METHODS}
        reads = _hidden_states(tree, cls)
    except SourceError as error:
        return not_understood(f"{looked}; {error.message}", cls.place)
    for name in _METHODS:
        method = methods[name]
        if method is None:
            return absent(f"{cls.name} and its bases have no {name}", cls.place)
        if is_stub(method.node):
            return absent(f"{name} of {method.owner.name} is a stub", method.place, cls.place)
    if reads is None:
        return not_understood(
            f"looked for spec_info.hidden_states in the forward of {cls.name} and of the modules that it "
            "builds; nothing reads it",
            *(method.place for method in methods.values() if method is not None),
        )
    where = [methods[name] for name in _METHODS]
    return found(
        cls.name,
        f"{cls.name} builds, loads and runs: forward reads the target's hidden states at {reads}",
        *(method.place for method in where if method is not None),
        reads,
    )


def effective_method(tree: SourceTree, cls: ClassSource, name: str) -> MethodSource | None:
    """The method that does the work: those that only hand on to their base are passed over."""
    after = ""
    for _ in class_order(tree, cls):
        method = find_method(tree, cls, name, after)
        if method is None or not _only_calls_base(method.node):
            return method
        base = find_method(tree, cls, name, method.owner.name)
        if base is None:
            # The base is outside the tree: nothing more can be said than that it is called.
            return method
        after = method.owner.name
    return None


def _only_calls_base(function: ast.AST) -> bool:
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    body = [
        statement
        for statement in function.body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
    if len(body) != 1 or not isinstance(body[0], ast.Expr | ast.Return):
        return False
    call = body[0].value
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == function.name
        and isinstance(call.func.value, ast.Call)
        and isinstance(call.func.value.func, ast.Name)
        and call.func.value.func.id == "super"
    )


def _hidden_states(tree: SourceTree, cls: ClassSource) -> Place | None:
    """The line of a forward that reads the target's hidden states: its own, or that of a module it builds."""
    for candidate in (cls, *_built(tree, cls)):
        for entry in class_order(tree, candidate):
            for function in entry.node.body:
                if isinstance(function, ast.FunctionDef):
                    line = _reads_hidden_states(function)
                    if line:
                        return Place(entry.file, line)
    return None


def _built(tree: SourceTree, cls: ClassSource) -> Iterator[ClassSource]:
    """Classes that `__init__` makes objects of."""
    builder = find_method(tree, cls, "__init__")
    if builder is None:
        return
    for node in ast.walk(builder.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            built = find_class(tree, builder.owner.file, node.func.id)
            if built is not None and built.name != cls.name:
                yield built


def _reads_hidden_states(function: ast.FunctionDef) -> int:
    """The line; 0 when it does not. `spec_info.hidden_states`, or a name bound to `....spec_info`."""
    holders = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
        if node.value.attr == _HIDDEN[0]
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr == _HIDDEN[1] and isinstance(node.ctx, ast.Load):
            owner = node.value
            if isinstance(owner, ast.Attribute) and owner.attr == _HIDDEN[0]:
                return node.lineno
            if isinstance(owner, ast.Name) and owner.id in holders:
                return node.lineno
    return 0
