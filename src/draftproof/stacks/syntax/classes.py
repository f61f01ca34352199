"""Classes across files: bases, the order in which methods are looked for."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from draftproof.stacks.source import SourceTree
from draftproof.stacks.syntax.definitions import (
    ClassDefinition,
    FunctionDefinition,
    find_class,
    find_function,
)
from draftproof.stacks.syntax.modules import resolve_name
from draftproof.stacks.syntax.names import dotted_name

_MOST_CLASSES = 200


@dataclass(frozen=True)
class ClassOrder:
    """A class and its bases in the order in which Python looks for methods.

    Attributes:
        classes: those of the tree; the class itself first.
        outside: names of bases that are not in the tree: "nn.Module".
    """

    classes: tuple[ClassDefinition, ...]
    outside: tuple[str, ...]


def base_names(definition: ClassDefinition) -> tuple[str, ...]:
    """The bases as they are written; parameters of generic ones are left out."""
    nodes = (base.value if isinstance(base, ast.Subscript) else base for base in definition.node.bases)
    return tuple(name for name in map(dotted_name, nodes) if name is not None)


def class_order(tree: SourceTree, definition: ClassDefinition) -> ClassOrder:
    """The method resolution order of a class, through imports and re-exports."""
    outside: list[str] = []
    order = _linearise(tree, definition, outside, ())
    return ClassOrder(tuple(order), tuple(dict.fromkeys(outside)))


def _linearise(
    tree: SourceTree, definition: ClassDefinition, outside: list[str], above: tuple[ClassDefinition, ...]
) -> list[ClassDefinition]:
    if definition in above or len(above) > _MOST_CLASSES:
        return []
    bases: list[ClassDefinition] = []
    for name in base_names(definition):
        base = _resolve_class(tree, definition.file, name)
        if base is None:
            outside.append(name)
        else:
            bases.append(base)
    orders = [_linearise(tree, base, outside, (*above, definition)) for base in bases]
    return [definition, *_merge([*orders, bases])]


def _resolve_class(tree: SourceTree, file: str, name: str) -> ClassDefinition | None:
    found = resolve_name(tree, file, name)
    if found is None or found.node is None:
        return None
    if isinstance(found.node, ast.ClassDef):
        return find_class(tree, found.file, found.name)
    if isinstance(found.node, ast.Assign):
        alias = dotted_name(found.node.value)
        if alias is not None and (found.file, alias) != (file, name):
            return _resolve_class(tree, found.file, alias)
    return None


def _merge(orders: list[list[ClassDefinition]]) -> list[ClassDefinition]:
    """Python's merge (C3); where there is no consistent order, the order of writing."""
    merged: list[ClassDefinition] = []
    rest = [list(order) for order in orders if order]
    while rest:
        heads = (order[0] for order in rest)
        chosen = next((head for head in heads if not any(head in other[1:] for other in rest)), rest[0][0])
        merged.append(chosen)
        rest = [[entry for entry in order if entry != chosen] for order in rest]
        rest = [order for order in rest if order]
    return merged


def find_method(tree: SourceTree, definition: ClassDefinition, name: str) -> FunctionDefinition | None:
    """The method that an object of the class has, from the class or a base; None when the tree has none."""
    for entry in class_order(tree, definition).classes:
        method = find_function(tree, entry.file, f"{entry.name}.{name}")
        if method is not None:
            return method
    return None
