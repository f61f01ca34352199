"""The options of `draftproof generate`, from the annotations of the function that carries it out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from draftproof.stacks.classes import find_class, module_file, statements_of
from draftproof.stacks.launch_facts import Option, OptionTable, ValueKind
from draftproof.stacks.native.own_source import GENERATE
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.source import SourceTree

COMMAND = "generate"
_KINDS = {
    "str": ValueKind.STRING,
    "int": ValueKind.INTEGER,
    "float": ValueKind.NUMBER,
    "bool": ValueKind.FLAG,
    "Path": ValueKind.STRING,
    "list": ValueKind.LIST,
}
_OPTION, _ARGUMENT = "Option", "Argument"


def read_options(tree: SourceTree) -> Reading[OptionTable]:
    """Every option of the command, as its function's annotations declare them.

    Raises:
        SourceError: a file cannot be read or parsed.
    """
    function = _function(tree, GENERATE, COMMAND)
    if function is None:
        return not_understood(f"looked for a function {COMMAND} in {GENERATE}")
    options = tuple(_options(tree, function))
    if not options:
        return not_understood(
            f"looked for annotated options of {COMMAND} in {GENERATE}", Place(GENERATE, function.lineno)
        )
    place = Place(GENERATE, function.lineno)
    return found(OptionTable(options), f"{len(options)} options of draftproof {COMMAND}", place)


def _options(tree: SourceTree, function: ast.FunctionDef) -> Iterator[Option]:
    arguments = function.args.args
    defaults = [None] * (len(arguments) - len(function.args.defaults)) + list(function.args.defaults)
    for argument, default in zip(arguments, defaults, strict=True):
        found_at = _annotated(tree, GENERATE, argument.annotation)
        if found_at is None:
            continue
        file, inner, call = found_at
        if _last(call.func) == _OPTION:
            yield _option(tree, file, argument, inner, call, default)


def _option(
    tree: SourceTree,
    file: str,
    argument: ast.arg,
    inner: ast.expr,
    call: ast.Call,
    default: ast.expr | None,
) -> Option:
    names = [
        node.value for node in call.args if isinstance(node, ast.Constant) and str(node.value).startswith("-")
    ]
    own = [str(name) for name in names] or [f"--{argument.arg.replace('_', '-')}"]
    long = [name for name in own if name.startswith("--")]
    name = long[0] if long else own[0]
    kind, choices = _kind(tree, file, inner)
    return Option(
        name=name,
        aliases=tuple(other for other in own if other != name),
        kind=kind,
        choices=choices,
        default=_default(tree, default),
        place=Place(GENERATE, argument.lineno),
    )


def _kind(tree: SourceTree, file: str, node: ast.expr) -> tuple[ValueKind, tuple[str, ...]]:
    """What stands after the option; an enum's values are its choices."""
    if isinstance(node, ast.BinOp):
        node = node.left
    name = _last(node.value if isinstance(node, ast.Subscript) else node)
    if name in _KINDS:
        return _KINDS[name], ()
    return ValueKind.STRING, tuple(value for _, value in _members(tree, file, name))


def _default(tree: SourceTree, node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant):
        return "" if node.value is None else str(node.value)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        values = dict(_members(tree, GENERATE, node.value.id))
        return values.get(node.attr, "")
    return ""


def _members(tree: SourceTree, file: str, name: str) -> Iterator[tuple[str, str]]:
    """Name and value of an enum's members."""
    owner = find_class(tree, file, name)
    for statement in owner.node.body if owner else ():
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, str(statement.value.value)


def _annotated(
    tree: SourceTree, file: str, node: ast.expr | None, depth: int = 0
) -> tuple[str, ast.expr, ast.Call] | None:
    """Type and `typer` call of an annotation; a name is looked up in its module or where it is imported."""
    if isinstance(node, ast.Name) and depth < 4:
        where = _assigned(tree, file, node.id)
        return _annotated(tree, where[0], where[1], depth + 1) if where else None
    if not isinstance(node, ast.Subscript) or _last(node.value) != "Annotated":
        return None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    calls = [part for part in parts[1:] if isinstance(part, ast.Call)]
    known = [call for call in calls if _last(call.func) in (_OPTION, _ARGUMENT)]
    return (file, parts[0], known[0]) if known else None


def _assigned(tree: SourceTree, file: str, name: str) -> tuple[str, ast.expr] | None:
    for statement in statements_of(tree.syntax(file).body):
        if isinstance(statement, ast.Assign):
            if any(isinstance(target, ast.Name) and target.id == name for target in statement.targets):
                return file, statement.value
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            for alias in statement.names:
                source = module_file(tree, statement.module or "")
                if (alias.asname or alias.name) == name and source and source != file:
                    return _assigned(tree, source, alias.name)
    return None


def _function(tree: SourceTree, file: str, name: str) -> ast.FunctionDef | None:
    for statement in tree.syntax(file).body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
    return None


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
