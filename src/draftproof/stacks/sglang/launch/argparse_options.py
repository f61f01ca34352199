"""Options declared by `parser.add_argument(...)` calls in `ServerArgs.add_cli_args`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from draftproof.stacks.place import Place
from draftproof.stacks.sglang.launch.declared_option import Declaration, last_name, text_of
from draftproof.stacks.sglang.launch.literals import NotLiteral, literal_value
from draftproof.stacks.source import SourceTree


def argparse_declarations(
    tree: SourceTree, file: str, function: ast.FunctionDef, fields: Mapping[str, ast.expr]
) -> Iterator[Declaration]:
    """The declarations of a function that fills a parser.

    Args:
        tree: the source.
        file: where the function stands.
        function: `add_cli_args`.
        fields: defaults of the class's fields, since `default=ServerArgs.x` points there.
    """
    local = {
        target.id: statement.value
        for statement in ast.walk(function)
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            declaration = _declaration(tree, file, node, local, fields)
            if declaration is not None:
                yield declaration


def _declaration(
    tree: SourceTree,
    file: str,
    call: ast.Call,
    local: dict[str, ast.expr],
    fields: Mapping[str, ast.expr],
) -> Declaration | None:
    names = tuple(text_of(argument) for argument in call.args)
    if not names or not all(name.startswith("-") for name in names):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    unread: list[str] = []
    choices: tuple[str, ...] | None = None
    if "choices" in given:
        choices = _choices(tree, file, given["choices"], local)
        if choices is None:
            unread.append("choices")
    return Declaration(
        names=names,
        field=text_of(given.get("dest")),
        place=Place(file, call.lineno),
        parser=last_name(given.get("type")),
        action=last_name(given.get("action")),
        arity=_arity(given.get("nargs")),
        choices=choices,
        default=_default(given.get("default"), fields),
        help=text_of(given.get("help")),
        constant=_constant(given.get("const") or given.get("const_value")),
        new_flag=text_of(given.get("new_flag")),
        error=text_of(given.get("error_message")),
        required=_is_true(given.get("required")),
        unread=tuple(unread),
    )


def _choices(
    tree: SourceTree, file: str, node: ast.expr, local: dict[str, ast.expr]
) -> tuple[str, ...] | None:
    try:
        values = literal_value(tree, file, node, local)
    except NotLiteral:
        return None
    return tuple(str(value) for value in values) if isinstance(values, list) else None


def _arity(node: ast.expr | None) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _default(node: ast.expr | None, fields: Mapping[str, ast.expr]) -> str:
    if node is None:
        return ""
    if isinstance(node, ast.Attribute) and node.attr in fields:
        return ast.unparse(fields[node.attr])
    if isinstance(node, ast.Call) and node.args and text_of(node.args[0]) in fields:
        return ast.unparse(fields[text_of(node.args[0])])
    return ast.unparse(node)


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
