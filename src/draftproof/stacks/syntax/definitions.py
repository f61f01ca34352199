"""Classes and functions of a file."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree
from draftproof.stacks.syntax.names import dotted_name

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ClassDefinition:
    """A class statement.

    Attributes:
        file: path in the tree.
        name: dotted inside the file.
        node: its syntax tree.
    """

    file: str
    name: str
    node: ast.ClassDef

    @property
    def place(self) -> Place:
        """The line of its name."""
        return Place(self.file, self.node.lineno)


@dataclass(frozen=True)
class FunctionDefinition:
    """A function or method.

    Attributes:
        file: path in the tree.
        name: dotted inside the file: "Model.load_weights".
        node: its syntax tree.
    """

    file: str
    name: str
    node: FunctionNode

    @property
    def place(self) -> Place:
        """The line of its name."""
        return Place(self.file, self.node.lineno)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Its parameters' names, without *args and **kwargs."""
        spec = self.node.args
        return tuple(entry.arg for entry in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs))


def top_level(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module or class body, those inside `if`, `try` and `with` too, in order."""
    for node in statements:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from top_level(node.body)
            yield from top_level(getattr(node, "orelse", []))
            for handler in getattr(node, "handlers", []):
                yield from top_level(handler.body)
            yield from top_level(getattr(node, "finalbody", []))


def find_class(tree: SourceTree, file: str, name: str) -> ClassDefinition | None:
    """The class of that dotted name in a file; the last one when there are several."""
    node = _find(tree.syntax(file).body, name)
    return ClassDefinition(file, name, node) if isinstance(node, ast.ClassDef) else None


def find_function(tree: SourceTree, file: str, name: str) -> FunctionDefinition | None:
    """The function or method of that dotted name in a file; the last one when there are several."""
    node = _find(tree.syntax(file).body, name)
    return FunctionDefinition(file, name, node) if isinstance(node, FunctionNode) else None


def _find(body: Sequence[ast.stmt], name: str) -> ast.stmt | None:
    first, _, rest = name.partition(".")
    found: ast.ClassDef | FunctionNode | None = None
    for node in top_level(body):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == first:
            found = node
    if found is None or not rest:
        return found
    return _find(found.body, rest)


def is_stub(node: ast.ClassDef | FunctionNode) -> bool:
    """Whether a body does nothing: docstring, pass, ..., raise NotImplementedError, return None.

    A class is a stub when it has no statement but such ones and stub methods.
    """
    return all(_does_nothing(statement) for statement in node.body)


def _does_nothing(node: ast.stmt) -> bool:
    if isinstance(node, ast.Pass):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Return):
        return node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return raised is not None and dotted_name(raised) == "NotImplementedError"
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return is_stub(node)
    return False


def decorator_names(node: ast.ClassDef | FunctionNode) -> tuple[str, ...]:
    """Names of the decorators, calls without their arguments: "dataclass", "torch.no_grad"."""
    called = (part.func if isinstance(part, ast.Call) else part for part in node.decorator_list)
    return tuple(name for name in map(dotted_name, called) if name is not None)
