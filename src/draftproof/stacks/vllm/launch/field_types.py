"""Types of the fields of vLLM's config classes, as far as its command line derives options from them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from draftproof.errors import SourceError
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.definitions import Defined, find_definition

MOST_ALIASES = 24
"""Names of types that are followed one through the other."""
_BUILT_IN = frozenset(("bool", "int", "float", "str", "dict", "list", "tuple", "set"))
_GENERIC = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set", "Sequence": "list"}
_TRANSPARENT = frozenset(("Annotated", "SkipValidation", "Final", "InitVar"))


@dataclass(frozen=True)
class FieldType:
    """A type, taken apart at its unions.

    Attributes:
        parts: "bool", "int", "str", "float", "dict", "list", "tuple", "set", "None", "Literal", "enum",
            "config" (one of the config classes), and "other".
        choices: values of the literals or names of the enum's members, in order.
        element: type of the items of a list, tuple or set; None when there is none.
    """

    parts: frozenset[str] = frozenset()
    choices: tuple[str | int, ...] = ()
    element: FieldType | None = None

    def __or__(self, other: FieldType) -> FieldType:
        return FieldType(
            self.parts | other.parts,
            tuple(dict.fromkeys((*self.choices, *other.choices))),
            self.element or other.element,
        )

    def has(self, part: str) -> bool:
        """Whether the union holds such a part."""
        return part in self.parts


OTHER = FieldType(frozenset(("other",)))


def read_type(tree: SourceTree, file: str, annotation: ast.expr) -> FieldType:
    """The type that an annotation in a file means; `OTHER` for what is not followed."""
    return _read(tree, file, annotation, MOST_ALIASES)


def literal_values(tree: SourceTree, file: str, name: str) -> tuple[str | int, ...]:
    """The values of a `Literal` that a module gives a name; literals in it are opened. Empty when it is none.

    Raises:
        SourceError: a module on the way cannot be read or parsed.
    """
    defined = find_definition(tree, file, name)
    if defined is None or not isinstance(defined.node, ast.expr):
        return ()
    return _read(tree, defined.file, defined.node, MOST_ALIASES).choices


def _read(tree: SourceTree, file: str, node: ast.expr, left: int) -> FieldType:
    if left <= 0:
        return OTHER
    if isinstance(node, ast.Constant):
        return _constant(tree, file, node, left)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _read(tree, file, node.left, left - 1) | _read(tree, file, node.right, left - 1)
    if isinstance(node, ast.Subscript):
        return _subscript(tree, file, node, left - 1)
    if isinstance(node, ast.Name | ast.Attribute):
        return _named(tree, file, ast.unparse(node), left - 1)
    return OTHER


def _constant(tree: SourceTree, file: str, node: ast.Constant, left: int) -> FieldType:
    if node.value is None:
        return FieldType(frozenset(("None",)))
    if not isinstance(node.value, str):
        return OTHER
    try:
        inner = ast.parse(node.value, mode="eval").body
    except (SyntaxError, ValueError):
        return OTHER
    return _read(tree, file, inner, left - 1)


def _named(tree: SourceTree, file: str, name: str, left: int) -> FieldType:
    if name in _BUILT_IN:
        return FieldType(frozenset((name,)))
    last = name.rpartition(".")[2]
    if last in _GENERIC:
        return FieldType(frozenset((_GENERIC[last],)))
    try:
        defined = find_definition(tree, file, name)
    except SourceError:
        return OTHER
    if defined is None:
        return OTHER
    if isinstance(defined.node, ast.ClassDef):
        return _class(tree, Defined(defined.file, defined.node), defined.node, left)
    if isinstance(defined.node, ast.expr) and not isinstance(defined.node, ast.Call):
        return _read(tree, defined.file, defined.node, left)
    return OTHER


def _class(tree: SourceTree, defined: Defined, node: ast.ClassDef, left: int) -> FieldType:
    bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    if any(base.endswith("Enum") for base in bases):
        return FieldType(frozenset(("enum",)), _members(node))
    decorators = [ast.unparse(entry) for entry in node.decorator_list]
    if any(text.split("(")[0].rpartition(".")[2] in ("config", "dataclass") for text in decorators):
        return FieldType(frozenset(("config",)))
    if "dict" in bases:
        return FieldType(frozenset(("dict",)))
    inherited = [_named(tree, defined.file, ast.unparse(base), left - 1) for base in node.bases]
    return next((base for base in inherited if base != OTHER), OTHER)


def _members(node: ast.ClassDef) -> tuple[str, ...]:
    names = (
        target.id
        for statement in node.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    )
    return tuple(names)


def _subscript(tree: SourceTree, file: str, node: ast.Subscript, left: int) -> FieldType:
    name = ast.unparse(node.value).rpartition(".")[2]
    inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Literal":
        return FieldType(frozenset(("Literal",)), _literals(tree, file, inside, left))
    if name in _TRANSPARENT:
        return _read(tree, file, inside[0], left)
    if name == "Optional":
        return _read(tree, file, inside[0], left) | FieldType(frozenset(("None",)))
    if name == "Union":
        joined = FieldType()
        for part in inside:
            joined = joined | _read(tree, file, part, left)
        return joined
    container = _GENERIC.get(name, name)
    if container in ("list", "tuple", "set"):
        return FieldType(frozenset((container,)), element=_read(tree, file, inside[0], left))
    return FieldType(frozenset((container,))) if container == "dict" else OTHER


def _literals(tree: SourceTree, file: str, inside: list[ast.expr], left: int) -> tuple[str | int, ...]:
    values: list[str | int] = []
    for part in inside:
        if isinstance(part, ast.Constant) and isinstance(part.value, str | int):
            values.append(part.value)
        elif isinstance(part, ast.Name | ast.Attribute):
            values.extend(_named(tree, file, ast.unparse(part), left).choices)
        elif isinstance(part, ast.Subscript):
            values.extend(_subscript(tree, file, part, left).choices)
    return tuple(dict.fromkeys(values))


def with_element_choices(kind: FieldType) -> FieldType:
    """A list of literals with the literals as its own choices."""
    return replace(kind, choices=kind.element.choices) if kind.element is not None else kind
