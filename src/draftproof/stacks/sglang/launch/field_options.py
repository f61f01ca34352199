"""Options declared by annotated fields: `name: A[Type, "help"] = default` or `A[Type, Arg(...)]`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from draftproof.stacks.place import Place
from draftproof.stacks.sglang.launch.declared_option import Declaration, last_name, text_of
from draftproof.stacks.sglang.launch.literals import NotLiteral, literal_value
from draftproof.stacks.source import SourceTree

ANNOTATIONS = ("A", "Annotated")


@dataclass(frozen=True)
class AnnotatedField:
    """A field of the server's arguments.

    Attributes:
        name: of the field.
        type: its annotation without what is attached to it.
        metadata: what is attached: a text or an `Arg(...)` call; None for a plain field.
        default: its default; None when there is none.
        place: where it stands.
    """

    name: str
    type: ast.expr
    metadata: ast.expr | None
    default: ast.expr | None
    place: Place


def annotated_fields(file: str, body: list[ast.stmt]) -> Iterator[AnnotatedField]:
    """The fields of a class."""
    for statement in body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        annotation, metadata = statement.annotation, None
        if isinstance(annotation, ast.Subscript) and last_name(annotation.value) in ANNOTATIONS:
            parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
            if len(parts) >= 2:
                annotation, metadata = parts[0], parts[1]
        yield AnnotatedField(
            statement.target.id, annotation, metadata, statement.value, Place(file, statement.lineno)
        )


def field_declaration(tree: SourceTree, entry: AnnotatedField) -> Declaration | None:
    """What the source's own rule makes of a field; None when it is no option.

    The rule (`add_cli_args_from_dataclass`): the option's name is the field's with dashes unless `cli_name`
    says otherwise; a bool is a flag; a list takes several words; a Literal's values are the choices.
    """
    if entry.metadata is None:
        return None
    given = _arguments(entry.metadata)
    if _is_true(given.get("no_cli")):
        return None
    name = text_of(given.get("cli_name")) or f"--{entry.name.replace('_', '-')}"
    aliases = given.get("aliases")
    names = (name, *(text_of(item) for item in aliases.elts)) if isinstance(aliases, ast.List) else (name,)
    declaration = Declaration(
        names=names,
        field=entry.name,
        place=entry.place,
        default="" if entry.default is None else ast.unparse(entry.default),
        help=text_of(given.get("help")),
        constant=_constant(given.get("const")),
        required=entry.default is None or _is_true(given.get("required")),
    )
    if "action" in given:
        return replace(declaration, action=last_name(given["action"]), arity=_arity(given.get("nargs")))
    return _typed(tree, entry, given, declaration)


def _typed(
    tree: SourceTree, entry: AnnotatedField, given: dict[str, ast.expr], declaration: Declaration
) -> Declaration:
    inner = _without_none(entry.type)
    parser = last_name(given.get("type_parser"))
    choices: ast.expr | None = given.get("choices")
    arity = _arity(given.get("nargs"))
    if isinstance(inner, ast.Subscript) and last_name(inner.value) == "Literal":
        choices = choices or inner.slice
        arity = ""
    elif isinstance(inner, ast.Subscript) and last_name(inner.value) in ("List", "list") and not parser:
        parser = last_name(inner.slice)
        arity = arity or "+"
    elif last_name(inner) == "bool" and not parser:
        return replace(declaration, action="store_true")
    else:
        parser = parser or last_name(inner)
    if choices is None:
        return replace(declaration, parser=parser, arity=arity)
    values = _choices(tree, entry.place.file, choices)
    unread = ("choices",) if values is None else ()
    return replace(declaration, parser=parser, arity=arity, choices=values, unread=unread)


def _arguments(metadata: ast.expr) -> dict[str, ast.expr]:
    if isinstance(metadata, ast.Call):
        return {keyword.arg: keyword.value for keyword in metadata.keywords if keyword.arg is not None}
    return {"help": metadata}


def _without_none(annotation: ast.expr) -> ast.expr:
    """X of `Optional[X]` and `X | None`."""
    if isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Optional":
        return annotation.slice
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = [side for side in (annotation.left, annotation.right) if not _is_none(side)]
        return sides[0] if len(sides) == 1 else annotation
    return annotation


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _choices(tree: SourceTree, file: str, node: ast.expr) -> tuple[str, ...] | None:
    try:
        values = literal_value(tree, file, node)
    except NotLiteral:
        return None
    if isinstance(values, list):
        return tuple(str(value) for value in values)
    return (values,) if isinstance(values, str) else None


def _arity(node: ast.expr | None) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
