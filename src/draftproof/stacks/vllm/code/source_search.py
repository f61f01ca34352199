"""Finding functions, assignments and conditions in vLLM's source by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from draftproof.errors import SourceError
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree


def function_node(tree: SourceTree, file: str, name: str) -> ast.FunctionDef | None:
    """A function or method: "function" or "Class.method"; None when the file does not have it.

    Raises:
        SourceError: there is no such file, or it is no Python.
    """
    scope: list[ast.stmt] = tree.syntax(file).body
    *owners, last = name.split(".")
    for owner in owners:
        classes = [node for node in scope if isinstance(node, ast.ClassDef) and node.name == owner]
        if not classes:
            return None
        scope = classes[-1].body
    functions = [node for node in scope if isinstance(node, ast.FunctionDef) and node.name == last]
    return functions[-1] if functions else None


def has_file(tree: SourceTree, file: str) -> bool:
    """Whether there is such a file and it is Python."""
    try:
        tree.syntax(file)
    except SourceError:
        return False
    return True


def module_assignment(tree: SourceTree, file: str, name: str) -> ast.expr | None:
    """The value that a module assigns to a name at its top level.

    Raises:
        SourceError: there is no such file, or it is no Python.
    """
    for node in tree.syntax(file).body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.value
    return None


def strings(node: ast.AST) -> Iterator[str]:
    """All string constants below a node, f-strings' fixed parts included."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def compares(node: ast.AST) -> Iterator[ast.Compare]:
    """All comparisons below a node, in source order."""
    found = [inner for inner in ast.walk(node) if isinstance(inner, ast.Compare)]
    yield from sorted(found, key=lambda compare: (compare.lineno, compare.col_offset))


def called_names(node: ast.AST) -> frozenset[str]:
    """Last names of everything that is called below a node."""
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            function = inner.func
            if isinstance(function, ast.Attribute):
                names.add(function.attr)
            elif isinstance(function, ast.Name):
                names.add(function.id)
    return frozenset(names)


def place_of(file: str, node: ast.AST) -> Place:
    """The line of a node."""
    return Place(file, getattr(node, "lineno", 1))
