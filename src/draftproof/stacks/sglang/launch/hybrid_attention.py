"""The attention backends that SGLang lets hybrid Gated DeltaNet models use on Blackwell, by its assertion."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from draftproof.errors import SourceError
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.launch.declared_option import last_name
from draftproof.stacks.sglang.launch.literals import NotLiteral, literal_value
from draftproof.stacks.source import SourceTree

FILE = "sglang/srt/layers/attention/attention_registry.py"
FUNCTION = "attn_backend_wrapper"
GUARD = "is_blackwell"
CONSUMER = "is_sm120"
"""Part of the name of the test for consumer Blackwell, where a version tells the two apart."""


def allowed_on_blackwell(tree: SourceTree, capability: int) -> Reading[tuple[str, ...]]:
    """The names that pass the assertion on a GPU of this compute capability (120 for SM120)."""
    looked_for = f"looked for the backends that {FUNCTION} in {FILE} asserts under {GUARD}()"
    try:
        module = tree.syntax(FILE)
    except SourceError as error:
        return not_understood(f"{looked_for}: {error}")
    function = next((n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == FUNCTION), None)
    guard = None if function is None else _guard(function)
    if guard is None:
        return not_understood(f"{looked_for}, and there is no such test")
    names = _listed(tree, guard, capability >= 120) or _compared(guard)
    place = next((Place(FILE, node.lineno) for node in ast.walk(guard) if isinstance(node, ast.Assert)), None)
    if not names or place is None:
        return not_understood(f"{looked_for}, in a form that is not known", Place(FILE, guard.lineno))
    return found(names, f"{', '.join(names)} pass the assertion for hybrid Gated DeltaNet models", place)


def _guard(function: ast.FunctionDef) -> ast.If | None:
    for node in ast.walk(function):
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Call)
            and last_name(node.test.func) == GUARD
        ):
            return node
    return None


def _compared(guard: ast.If) -> tuple[str, ...]:
    """Names of an assertion `backend == "a" or backend == "b"`."""
    names = [
        side.value
        for statement in guard.body
        if isinstance(statement, ast.Assert)
        for node in ast.walk(statement.test)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq)
        for side in node.comparators
        if isinstance(side, ast.Constant) and isinstance(side.value, str)
    ]
    return tuple(dict.fromkeys(names))


def _listed(tree: SourceTree, guard: ast.If, is_consumer: bool) -> tuple[str, ...]:
    """Names of a set that is assigned for this kind of Blackwell and asserted afterwards."""
    for statement in _taken(guard.body, is_consumer):
        if isinstance(statement, ast.Assign):
            try:
                values = literal_value(tree, FILE, statement.value)
            except NotLiteral:
                continue
            if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
                return tuple(sorted(str(value) for value in values))
    return ()


def _taken(body: list[ast.stmt], is_consumer: bool) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.If) and CONSUMER in ast.unparse(statement.test):
            yield from statement.body if is_consumer else statement.orelse
        else:
            yield statement
