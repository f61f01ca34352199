"""What a name means at the top level of a module of vLLM's source: a class, a function, an assigned value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.stacks.classes import MOST_IMPORTS, module_file
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.expr


@dataclass(frozen=True)
class Defined:
    """Something that a name stands for.

    Attributes:
        file: where it is written.
        node: the class, the function, or the value assigned to the name.
    """

    file: str
    node: Definition

    @property
    def place(self) -> Place:
        """Its line."""
        return Place(self.file, self.node.lineno)


def find_definition(tree: SourceTree, file: str, name: str) -> Defined | None:
    """What a name means in a module; imports are followed inside the tree.

    A name may have dots when its first part is an imported module: "me_quant.QuantizationMethods".

    Raises:
        SourceError: a module on the way cannot be read or parsed.
    """
    for _ in range(MOST_IMPORTS):
        head, _, rest = name.partition(".")
        imported: tuple[str, str] | None = None
        for statement in _statements(tree.syntax(file).body):
            if not rest:
                node = _defined_by(statement, head)
                if node is not None:
                    return Defined(file, node)
            imported = _imported(tree, file, statement, head, rest) or imported
        if imported is None:
            return None
        file, name = imported
    return None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module; of `if TYPE_CHECKING`, what runs comes first."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _statements(statement.orelse)
            yield from _statements(statement.body)
        elif isinstance(statement, ast.Try):
            yield from _statements(statement.body)
            for handler in statement.handlers:
                yield from _statements(handler.body)
        else:
            yield statement


def _defined_by(statement: ast.stmt, name: str) -> Definition | None:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return statement if statement.name == name else None
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
        value: ast.expr | None = statement.value
    elif isinstance(statement, ast.AnnAssign):
        targets, value = [statement.target], statement.value
    else:
        return None
    named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
    return value if named else None


def _imported(
    tree: SourceTree, file: str, statement: ast.stmt, head: str, rest: str
) -> tuple[str, str] | None:
    """The module and the name in it that an import gives `head`."""
    if isinstance(statement, ast.Import) and rest:
        for alias in statement.names:
            if alias.asname == head or (alias.asname is None and alias.name == head):
                source = module_file(tree, alias.name)
                return (source, rest) if source is not None else None
    if not isinstance(statement, ast.ImportFrom):
        return None
    package = _package(file, statement)
    for alias in statement.names:
        if (alias.asname or alias.name) != head:
            continue
        source = module_file(tree, f"{package}.{alias.name}")
        if rest:
            return (source, rest) if source is not None else None
        source = module_file(tree, package)
        return (source, alias.name) if source is not None else None
    return None


def _package(file: str, statement: ast.ImportFrom) -> str:
    if not statement.level:
        return statement.module or ""
    package = file.split("/")[: -statement.level]
    return ".".join([*package, statement.module] if statement.module else package)
