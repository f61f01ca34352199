"""An option of SGLang's server with all that its declaration says, argparse's rules applied."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum

from draftproof.stacks.launch_facts import Option, ValueKind
from draftproof.stacks.place import Place


class Arity(Enum):
    """How many words argparse takes after the option."""

    NONE = "none"
    ONE = "one"
    OPTIONAL = "none or one"
    SOME = "one or more"
    ANY = "any number"


@dataclass(frozen=True)
class DeclaredOption:
    """One option.

    Attributes:
        option: what every stack's options have in common.
        field: attribute of the server's arguments that it sets.
        parser: the function that reads its value: "int", "human_readable_int"; empty for words.
        arity: how many words it takes.
        constant: value of a flag that stores something else than true; None otherwise.
        negative: its spelling that says no: "--no-enable-x"; empty when there is none.
        required: the parser refuses a command without it.
        stops: what the parser says when it refuses the option as retired; empty otherwise.
        unread: the parts of the declaration that could not be read: ("choices",).
    """

    option: Option
    field: str
    parser: str
    arity: Arity
    constant: object = None
    negative: str = ""
    required: bool = False
    stops: str = ""
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Declaration:
    """The arguments of an `add_argument` call, wherever they were written.

    Attributes:
        names: as typed, the first one first.
        field: attribute that it sets; empty for argparse's own rule.
        place: where it stands.
        parser: name of the `type` function; empty for none.
        action: name of the action; empty for none.
        arity: `nargs` as written; empty for none.
        choices: the values; None for any.
        default: as the source says it.
        help: text.
        constant: `const`.
        new_flag: what the source says to use instead.
        error: what a retired option says when it stops the start.
        required: it has to be given.
        unread: parts that could not be read.
    """

    names: tuple[str, ...]
    field: str
    place: Place
    parser: str = ""
    action: str = ""
    arity: str = ""
    choices: tuple[str, ...] | None = None
    default: str = ""
    help: str = ""
    constant: object = None
    new_flag: str = ""
    error: str = ""
    required: bool = False
    unread: tuple[str, ...] = ()


_KINDS = {
    "int": ValueKind.INTEGER,
    "float": ValueKind.NUMBER,
    "loads": ValueKind.JSON,
    "bool": ValueKind.BOOLEAN,
}
_FLAG_ACTIONS = frozenset(
    (
        "store_true",
        "store_false",
        "store_const",
        "count",
        "BooleanOptionalAction",
        "DeprecatedAction",
        "DeprecatedStoreTrueAction",
        "DeprecatedStoreConstAction",
        "help",
        "version",
    )
)
_ARITIES = {"?": Arity.OPTIONAL, "+": Arity.SOME, "*": Arity.ANY, "0": Arity.NONE}


def declared_option(declaration: Declaration) -> DeclaredOption:
    """What argparse makes of a declaration."""
    arity = _arity(declaration)
    negative = ""
    names = [name for name in declaration.names if name.startswith("--")] or list(declaration.names)
    aliases = tuple(name for name in declaration.names if name != names[0])
    if declaration.action == "BooleanOptionalAction":
        negatives = tuple(f"--no-{name[2:]}" for name in declaration.names if name.startswith("--"))
        negative, aliases = negatives[0], (*aliases, *negatives)
    is_retired = declaration.action.startswith("Deprecated") or _says_deprecated(declaration.help)
    option = Option(
        name=names[0],
        aliases=aliases,
        kind=_kind(declaration, arity),
        choices=declaration.choices or (),
        default=declaration.default,
        place=declaration.place,
        deprecated=_deprecation(declaration) if is_retired else "",
    )
    return DeclaredOption(
        option=option,
        field=declaration.field or names[0].lstrip("-").replace("-", "_"),
        parser=declaration.parser,
        arity=arity,
        constant=declaration.constant,
        negative=negative,
        required=declaration.required,
        stops=declaration.error,
        unread=declaration.unread,
    )


def _arity(declaration: Declaration) -> Arity:
    if declaration.arity in _ARITIES:
        return _ARITIES[declaration.arity]
    if declaration.action == "DeprecatedStoreConstAction" and declaration.arity == "None":
        return Arity.ONE
    return Arity.NONE if declaration.action in _FLAG_ACTIONS else Arity.ONE


def _kind(declaration: Declaration, arity: Arity) -> ValueKind:
    if arity is Arity.NONE:
        return ValueKind.FLAG
    if arity in (Arity.SOME, Arity.ANY):
        return ValueKind.LIST
    return _KINDS.get(declaration.parser, ValueKind.STRING)


def _says_deprecated(text: str) -> bool:
    return "deprecated" in text[:60].lower()


def _deprecation(declaration: Declaration) -> str:
    if declaration.new_flag:
        return f"use {declaration.new_flag}"
    return " ".join(declaration.help.split()) or "deprecated"


def text_of(node: ast.expr | None) -> str:
    """The literal parts of a text; other parts are left out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return ""


def last_name(node: ast.expr | None) -> str:
    """The last part of a dotted name: "loads" of json.loads; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return node.id if isinstance(node, ast.Name) else ""
