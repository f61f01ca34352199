"""Classes of a stack's source and their bases, found by following imports inside the tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree

MOST_IMPORTS = 16
"""Re-exports that are followed for one name."""
MOST_BASES = 64
"""Classes in one line of inheritance."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ClassSource:
    """A class where it is written.

    Attributes:
        name: its name.
        file: path in the tree.
        node: its syntax.
    """

    name: str
    file: str
    node: ast.ClassDef

    @property
    def place(self) -> Place:
        """Its `class` line."""
        return Place(self.file, self.node.lineno)

    def method(self, name: str) -> Function | None:
        """A method of its own body; the last one, when there are several (properties, overloads)."""
        found = None
        for statement in statements_of(self.node.body):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
                found = statement
        return found


@dataclass(frozen=True)
class MethodSource:
    """A method and the class whose body it stands in."""

    owner: ClassSource
    node: Function

    @property
    def place(self) -> Place:
        """Its `def` line."""
        return Place(self.owner.file, self.node.lineno)


def find_class(tree: SourceTree, file: str, name: str) -> ClassSource | None:
    """The class that a name means at the top level of a module; imports are followed inside the tree.

    Raises:
        SourceError: a module on the way cannot be read or parsed.
    """
    for _ in range(MOST_IMPORTS):
        module = tree.syntax(file)
        imported = None
        for statement in statements_of(module.body):
            if isinstance(statement, ast.ClassDef) and statement.name == name:
                return ClassSource(name, file, statement)
            if isinstance(statement, ast.ImportFrom):
                imported = _imported(tree, file, statement, name) or imported
        if imported is None:
            return None
        file, name = imported
    return None


def bases_of(tree: SourceTree, cls: ClassSource) -> tuple[ClassSource, ...]:
    """The direct bases that are written in the tree; errors as `find_class`."""
    found = (find_class(tree, cls.file, base.id) for base in cls.node.bases if isinstance(base, ast.Name))
    return tuple(base for base in found if base is not None)


def class_order(tree: SourceTree, cls: ClassSource) -> tuple[ClassSource, ...]:
    """The class and all its bases in the tree, in the order in which Python looks for a method.

    Bases outside the tree are left out; errors as `find_class`.
    """
    merged = _merge(tree, cls, 0)
    return tuple(merged)


def find_method(tree: SourceTree, cls: ClassSource, name: str, after: str = "") -> MethodSource | None:
    """A method as the class has it, its own or inherited.

    Args:
        tree: the source.
        cls: the class.
        name: of the method.
        after: name of a class: only those behind it in the order are looked at, as `super()` does.

    Raises:
        SourceError: a module on the way cannot be read or parsed.
    """
    order = class_order(tree, cls)
    if after:
        names = [entry.name for entry in order]
        order = order[names.index(after) + 1 :] if after in names else ()
    for owner in order:
        method = owner.method(name)
        if method is not None:
            return MethodSource(owner, method)
    return None


def is_stub(function: Function) -> bool:
    """The body does nothing but pass, raise NotImplementedError, or return a constant."""
    body = [statement for statement in function.body if not _is_text(statement)]
    return all(_does_nothing(statement) for statement in body)


def statements_of(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module or class, those under `if` and `try` included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from statements_of(statement.body)
            yield from statements_of(statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from statements_of(statement.body)
            for handler in statement.handlers:
                yield from statements_of(handler.body)
            yield from statements_of(statement.orelse)


def module_file(tree: SourceTree, dotted: str) -> str | None:
    """The file of a module of the tree: "sglang.srt.utils" -> "sglang/srt/utils/__init__.py"."""
    path = dotted.replace(".", "/")
    return next((file for file in (f"{path}.py", f"{path}/__init__.py") if tree.has(file)), None)


def _imported(tree: SourceTree, file: str, statement: ast.ImportFrom, name: str) -> tuple[str, str] | None:
    for alias in statement.names:
        if (alias.asname or alias.name) == name:
            source = module_file(tree, _absolute(file, statement))
            return (source, alias.name) if source is not None else None
    return None


def _absolute(file: str, statement: ast.ImportFrom) -> str:
    if not statement.level:
        return statement.module or ""
    package = file.split("/")[: -statement.level]
    return ".".join([*package, statement.module] if statement.module else package)


def _merge(tree: SourceTree, cls: ClassSource, depth: int) -> list[ClassSource]:
    """C3 linearisation; plain depth-first order where the source's bases contradict it."""
    if depth > MOST_BASES:
        return [cls]
    bases = list(bases_of(tree, cls))
    lines = [_merge(tree, base, depth + 1) for base in bases] + [bases]
    order = [cls]
    while any(lines):
        lines = [line for line in lines if line]
        head = next(
            (line[0] for line in lines if not any(_holds(other[1:], line[0]) for other in lines)), lines[0][0]
        )
        order.append(head)
        lines = [[entry for entry in line if not _same(entry, head)] for line in lines]
    return order


def _holds(line: list[ClassSource], cls: ClassSource) -> bool:
    return any(_same(entry, cls) for entry in line)


def _same(one: ClassSource, other: ClassSource) -> bool:
    return one.name == other.name and one.file == other.file


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass | ast.Raise):
        return True
    if isinstance(statement, ast.Return):
        return statement.value is None or isinstance(statement.value, ast.Constant)
    return False
