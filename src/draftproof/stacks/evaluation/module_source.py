"""A module's statements by the names that they bind or change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from draftproof.stacks.evaluation.code import Compiler, ScopeKind
from draftproof.stacks.evaluation.scope import bound_names, own_nodes


class ModuleSource:
    """A module's source, shared by all runs.

    Attributes:
        file: path in the tree.
        dotted: full name: "sglang.srt.utils".
        package: name that a relative import with one dot starts from.
        statements: at its top level.
        binders: for each name, the positions of the statements that bind it or change its value.
        stars: positions of the `from x import *` statements.
    """

    def __init__(self, compiler: Compiler, file: str, dotted: str, tree: ast.Module) -> None:
        self.file = file
        self.dotted = dotted
        is_package = PurePosixPath(file).name == "__init__.py"
        self.package = dotted if is_package else dotted.rpartition(".")[0]
        self.scope = ScopeKind(compiler, file, None)
        self.statements = tuple(tree.body)
        self.stars = tuple(
            position
            for position, node in enumerate(self.statements)
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        )
        self.binders: dict[str, list[int]] = {}
        self._readers: dict[str, tuple[int, ...]] = {}
        functions = {node.name: node for node in self.statements if isinstance(node, ast.FunctionDef)}
        for position, node in enumerate(self.statements):
            names = set(bound_names([node])) | set(_changed_names(node))
            for called in _called_functions(node):
                if called in functions:
                    names |= _changed_by_calling(functions[called])
            for name in names:
                self.binders.setdefault(name, []).append(position)

    def readers(self, name: str) -> tuple[int, ...]:
        """Positions of the statements that read a name while the module is imported."""
        if name not in self._readers:
            self._readers[name] = tuple(
                position
                for position, node in enumerate(self.statements)
                if any(
                    isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load)
                    for part in own_nodes([node])
                )
            )
        return self._readers[name]


def _changed_by_calling(function: ast.FunctionDef) -> set[str]:
    """Names of the module that calling one of its functions changes."""
    nodes = list(ast.walk(function))
    declared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    names = {name for node in nodes for name in _changed_by_node(node)}
    return (names - bound_names(function.body)) | declared


def _changed_names(statement: ast.stmt) -> Iterator[str]:
    """Names whose values a top-level statement changes without binding them: X[k] = v, X.append(v)."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        for decorator in statement.decorator_list:
            if (root := _root(decorator)) is not None:
                yield root
        return
    for node in own_nodes([statement]):
        yield from _changed_by_node(node)
    if isinstance(statement, ast.For):
        yield from _changed_in_loop(statement)


def _changed_in_loop(loop: ast.For) -> Iterator[str]:
    """Names that a loop goes over and whose values its body changes: for cls in (A, B): cls.x = y."""
    targets = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    changed = {name for node in own_nodes(loop.body) for name in _changed_by_node(node)}
    if targets & changed:
        yield from (node.id for node in ast.walk(loop.iter) if isinstance(node, ast.Name))


def _changed_by_node(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
        root = _root(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        root = _root(node.value.func) if isinstance(node.value.func, ast.Attribute) else None
    else:
        root = None
    if root is not None:
        yield root


def _called_functions(statement: ast.stmt) -> Iterator[str]:
    """Names of functions that a top-level statement calls for their effect."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        for decorator in statement.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(called, ast.Name):
                yield called.id
        return
    for node in own_nodes([statement]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _root(node: ast.AST) -> str | None:
    """The name at the left end of an expression."""
    while True:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return None
