"""The options of a draftproof command, from the annotations of the function that carries it out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.stacks.classes import find_class, module_file, statements_of
from draftproof.stacks.evaluation import Named
from draftproof.stacks.launch_facts import Option, OptionTable, ValueKind
from draftproof.stacks.native.own_source import COMMAND_FILES, SERVE
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.source import SourceTree

_KINDS = {
    "str": ValueKind.STRING,
    "int": ValueKind.INTEGER,
    "float": ValueKind.NUMBER,
    "bool": ValueKind.FLAG,
    "Path": ValueKind.STRING,
    # One word each time that it is given.
    "list": ValueKind.STRING,
}
_OPTION, _ARGUMENT = "Option", "Argument"


@dataclass(frozen=True)
class DeclaredOption:
    """One option of a command.

    Attributes:
        option: its names, kind, choices and default.
        parameter: of the function that it fills.
        smallest: least number that is accepted; None for no limit.
        largest: greatest; None for no limit.
        members: what its choices stand for.
        ignores_case: choices are taken in any case.
        is_repeated: it may be given several times.
    """

    option: Option
    parameter: str
    smallest: float | None = None
    largest: float | None = None
    members: tuple[tuple[str, Named], ...] = ()
    ignores_case: bool = False
    is_repeated: bool = False


@dataclass(frozen=True)
class DeclaredCommand:
    """A command of draftproof in one version.

    Attributes:
        name: as typed after draftproof.
        place: of its function.
        options: in order.
        arguments: parameters of the words without a dash, in order.
    """

    name: str
    place: Place
    options: tuple[DeclaredOption, ...]
    arguments: tuple[str, ...]

    @property
    def table(self) -> OptionTable:
        """The options as every stack has them."""
        return OptionTable(tuple(each.option for each in self.options))

    def declared(self, name: str) -> DeclaredOption | None:
        """The option of that name or alias."""
        return next((o for o in self.options if name in (o.option.name, *o.option.aliases)), None)

    def filling(self, parameter: str) -> DeclaredOption | None:
        """The option that fills a parameter."""
        return next((each for each in self.options if each.parameter == parameter), None)


def read_options(tree: SourceTree) -> Reading[OptionTable]:
    """Every option of the server; errors as `read_command`."""
    reading = read_command(tree, SERVE)
    if reading.value is None:
        return not_understood(reading.sentence, *reading.places)
    return found(reading.value.table, reading.sentence, *reading.places)


def read_command(tree: SourceTree, name: str) -> Reading[DeclaredCommand]:
    """A command, as its function's annotations declare it.

    Raises:
        SourceError: a file cannot be read or parsed.
    """
    file = COMMAND_FILES[name]
    function = _function(tree, file, name) if tree.has(file) else None
    if function is None:
        return not_understood(f"looked for a function {name} in {file}")
    place = Place(file, function.lineno)
    declared = tuple(_parameters(tree, file, function))
    options = tuple(each for each in declared if isinstance(each, DeclaredOption))
    arguments = tuple(each for each in declared if isinstance(each, str))
    if not options:
        return not_understood(f"looked for annotated options of {name} in {file}", place)
    command = DeclaredCommand(name, place, options, arguments)
    return found(command, f"{len(options)} options of draftproof {name}", place)


def _parameters(tree: SourceTree, file: str, function: ast.FunctionDef) -> Iterator[DeclaredOption | str]:
    """Options, and the names of parameters that are arguments."""
    arguments = function.args.args
    defaults = [None] * (len(arguments) - len(function.args.defaults)) + list(function.args.defaults)
    for argument, default in zip(arguments, defaults, strict=True):
        found_at = _annotated(tree, file, argument.annotation)
        if found_at is None:
            continue
        where, inner, call = found_at
        if _last(call.func) == _ARGUMENT:
            yield argument.arg
        else:
            place = Place(file, argument.lineno)
            yield _option(tree, where, argument.arg, inner, call, place, _default(tree, file, default))


def _option(
    tree: SourceTree,
    file: str,
    parameter: str,
    inner: ast.expr,
    call: ast.Call,
    place: Place,
    default: str,
) -> DeclaredOption:
    names = [
        node.value for node in call.args if isinstance(node, ast.Constant) and str(node.value).startswith("-")
    ]
    kind, members = _kind(tree, file, inner, call)
    own = [str(name) for name in names] or [f"--{parameter.replace('_', '-')}"]
    if kind is ValueKind.FLAG and not names:
        own.append(f"--no-{own[0][2:]}")
    name = next((each for each in own if each.startswith("--")), own[0])
    option = Option(
        name=name,
        aliases=tuple(other for other in own if other != name),
        kind=kind,
        choices=tuple(value for value, _ in members),
        default=default,
        place=place,
    )
    keywords = {each.arg: each.value for each in call.keywords}
    return DeclaredOption(
        option,
        parameter,
        smallest=_number(keywords.get("min")),
        largest=_number(keywords.get("max")),
        members=members,
        ignores_case=_constant(keywords.get("case_sensitive")) is False,
        is_repeated=_last(_plain_type(inner)) == "list",
    )


def _plain_type(node: ast.expr) -> ast.expr:
    """The type of "int | None" and of "list[str]" without what stands around it."""
    if isinstance(node, ast.BinOp):
        node = node.left
    return node.value if isinstance(node, ast.Subscript) else node


def _kind(
    tree: SourceTree, file: str, node: ast.expr, call: ast.Call
) -> tuple[ValueKind, tuple[tuple[str, Named], ...]]:
    """What stands after the option; an enum's values are its choices."""
    if any(each.arg == "metavar" and _constant(each.value) == "JSON" for each in call.keywords):
        return ValueKind.JSON, ()
    name = _last(_plain_type(node))
    if name in _KINDS:
        return _KINDS[name], ()
    return ValueKind.STRING, tuple(
        (value, Named(where, f"{name}.{member}")) for where, member, value in _members(tree, file, name)
    )


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _number(node: ast.expr | None) -> float | None:
    value = _constant(node)
    return value if isinstance(value, int | float) else None


def _default(tree: SourceTree, file: str, node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant):
        return "" if node.value is None else str(node.value)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        values = {member: value for _, member, value in _members(tree, file, node.value.id)}
        return values.get(node.attr, "")
    return ""


def _members(tree: SourceTree, file: str, name: str) -> Iterator[tuple[str, str, str]]:
    """File, name and value of an enum's members."""
    owner = find_class(tree, file, name)
    if owner is None:
        return
    for statement in owner.node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield owner.file, target.id, str(statement.value.value)


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
