"""Modules of the tree, and what a name in a file refers to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree
from draftproof.stacks.syntax.definitions import FunctionNode, top_level

_MOST_HOPS = 12
"""Re-exports that are followed for one name."""


@dataclass(frozen=True)
class ImportedName:
    """A name that a file imports.

    Attributes:
        name: as it is known in the file.
        module: full name of the module it comes from.
        original: its name there; empty when the module itself is imported.
        place: of the import.
    """

    name: str
    module: str
    original: str
    place: Place


@dataclass(frozen=True)
class Resolved:
    """Where a name is really defined.

    Attributes:
        file: path in the tree.
        name: there.
        node: the class, function or assignment; None when the name is the module itself.
        hops: the imports that lead there, in order.
    """

    file: str
    name: str
    node: ast.stmt | None
    hops: tuple[Place, ...]

    @property
    def place(self) -> Place:
        """The line of the definition."""
        return Place(self.file, self.node.lineno if self.node is not None else 1)


def module_file(tree: SourceTree, dotted: str) -> str | None:
    """The file of a module by its full name; None when the tree has none."""
    stem = dotted.replace(".", "/")
    return next((file for file in (f"{stem}/__init__.py", f"{stem}.py") if tree.has(file)), None)


def package_of(file: str) -> str:
    """The package that relative imports of a file start from."""
    path = PurePosixPath(file)
    return ".".join(path.parent.parts)


def absolute_module(file: str, module: str | None, level: int) -> str:
    """The full name of the module in a `from` import of a file."""
    if level == 0:
        return module or ""
    parts = package_of(file).split(".")
    kept = parts[: len(parts) - (level - 1)]
    return ".".join([*kept, *([module] if module else [])])


def imported_names(tree: SourceTree, file: str) -> tuple[ImportedName, ...]:
    """Every name that a file imports at its top level; a star import has the name "*"."""
    return tuple(_imports(file, top_level(tree.syntax(file).body)))


def _imports(file: str, nodes: Iterator[ast.stmt]) -> Iterator[ImportedName]:
    for node in nodes:
        place = Place(file, node.lineno)
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                module = alias.name if alias.asname else name
                yield ImportedName(name, module, "", place)
        elif isinstance(node, ast.ImportFrom):
            module = absolute_module(file, node.module, node.level)
            for alias in node.names:
                yield ImportedName(alias.asname or alias.name, module, alias.name, place)


def resolve_name(tree: SourceTree, file: str, name: str) -> Resolved | None:
    """Where a name of a file is defined in the tree, through imports and re-exports.

    Args:
        tree: the source.
        file: where the name is used.
        name: dotted: "DeepseekV2Model", "qwen3_5.Qwen3_5ForCausalLM".

    Returns:
        None when the name comes from outside the tree or is not found.
    """
    return _resolve(tree, file, name, ())


def _resolve(tree: SourceTree, file: str, name: str, hops: tuple[Place, ...]) -> Resolved | None:
    if len(hops) > _MOST_HOPS:
        return None
    first, _, rest = name.partition(".")
    defined = _defined_in(tree, file, first)
    if defined is not None:
        return Resolved(file, name, defined, hops)
    imports = imported_names(tree, file)
    for entry in reversed(imports):
        if entry.name == first:
            return _through(tree, entry, rest, hops)
    for entry in reversed(imports):
        if entry.original == "*":
            target = module_file(tree, entry.module)
            found = (
                None if target in (None, file) else _resolve(tree, str(target), name, (*hops, entry.place))
            )
            if found is not None:
                return found
    return None


def _through(tree: SourceTree, entry: ImportedName, rest: str, hops: tuple[Place, ...]) -> Resolved | None:
    """What an import leads to: a name in a module, or a module."""
    hops = (*hops, entry.place)
    if entry.original:
        module = module_file(tree, entry.module)
        if module is not None:
            name = f"{entry.original}.{rest}" if rest else entry.original
            found = _resolve(tree, module, name, hops)
            if found is not None:
                return found
    dotted = f"{entry.module}.{entry.original}" if entry.original else entry.module
    parts = rest.split(".") if rest else []
    while parts and module_file(tree, f"{dotted}.{parts[0]}") is not None:
        dotted = f"{dotted}.{parts.pop(0)}"
    target = module_file(tree, dotted)
    if target is None:
        return None
    return _resolve(tree, target, ".".join(parts), hops) if parts else Resolved(target, "", None, hops)


def _defined_in(tree: SourceTree, file: str, name: str) -> ast.stmt | None:
    """The last class, function or assignment of a name at a file's top level."""
    found: ast.stmt | None = None
    for node in top_level(tree.syntax(file).body):
        if isinstance(node, (ast.ClassDef, FunctionNode)):
            found = node if node.name == name else found
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                found = node
    return found
