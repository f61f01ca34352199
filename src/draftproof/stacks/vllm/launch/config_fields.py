"""Fields of vLLM's config classes: name, type, default, bounds, and where they are written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.stacks.classes import ClassSource, class_order, find_class
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.launch.field_types import FieldType, read_type

_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


@dataclass(frozen=True)
class Bound:
    """A limit of a number: the sign and the value that it is compared with."""

    sign: str
    value: float

    def holds(self, number: float) -> bool:
        """Whether a number keeps it."""
        return {
            ">": number > self.value,
            ">=": number >= self.value,
            "<": number < self.value,
            "<=": number <= self.value,
        }[self.sign]

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


@dataclass(frozen=True)
class ConfigField:
    """One field.

    Attributes:
        name: as in the class.
        type: its annotation, resolved.
        default: the default's source text; empty when it is computed or missing.
        place: where it is declared.
        bounds: limits that the class states for it.
    """

    name: str
    type: FieldType
    default: str
    place: Place
    bounds: tuple[Bound, ...] = ()


def config_fields(tree: SourceTree, file: str, class_name: str) -> tuple[ConfigField, ...]:
    """All fields of a config class, those of its bases first; empty when there is no such class.

    Args:
        tree: the source.
        file: a module that has the class or imports it.
        class_name: its name there.

    Raises:
        SourceError: a module on the way cannot be read or parsed.
    """
    cls = find_class(tree, file, class_name)
    return fields_of(tree, cls) if cls is not None else ()


def fields_of(tree: SourceTree, cls: ClassSource) -> tuple[ConfigField, ...]:
    """As `config_fields`, for a class that was found."""
    fields: dict[str, ConfigField] = {}
    for owner in reversed(class_order(tree, cls)):
        for field in _own_fields(tree, owner):
            fields[field.name] = field
    return tuple(fields.values())


def _own_fields(tree: SourceTree, cls: ClassSource) -> Iterator[ConfigField]:
    for statement in cls.node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(statement.annotation):
            continue
        default, bounds = _default(statement.value)
        kind = read_type(tree, cls.file, statement.annotation)
        yield ConfigField(statement.target.id, kind, default, Place(cls.file, statement.lineno), bounds)


def _default(value: ast.expr | None) -> tuple[str, tuple[Bound, ...]]:
    if value is None:
        return "", ()
    if not isinstance(value, ast.Call):
        return ast.unparse(value), ()
    if ast.unparse(value.func).rpartition(".")[2] not in ("Field", "field"):
        return "", ()
    keywords = {entry.arg: entry.value for entry in value.keywords if entry.arg is not None}
    bounds = tuple(
        Bound(sign, number)
        for name, sign in _BOUNDS.items()
        if (number := _number(keywords.get(name))) is not None
    )
    default = keywords.get("default", value.args[0] if value.args else None)
    return (ast.unparse(default) if default is not None else ""), bounds


def _number(node: ast.expr | None) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    return None
