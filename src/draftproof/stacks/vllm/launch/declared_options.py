"""vLLM's options as its own source declares them, with what its parser does to their values."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from draftproof.stacks.classes import Function
from draftproof.stacks.launch_facts import Option, OptionTable, ValueKind
from draftproof.stacks.place import Place
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.definitions import find_definition
from draftproof.stacks.vllm.launch.config_fields import Bound, ConfigField

ARGUMENTS = "vllm/engine/arg_utils.py"
DERIVATION = "_compute_kwargs"
PARSER = "vllm/utils/argparse_utils.py"


@dataclass(frozen=True)
class DeclaredOption:
    """One option, with more than the shared table has room for.

    Attributes:
        option: as every stack's table has it.
        folds: capitals and "-" for "_" make no difference in its value.
        human: its number may be written "16k" or "1G".
        field: the config field that it sets; None for options that stand for themselves.
        bounds: limits of its number.
        negates: the option that this one switches off; empty for all others.
    """

    option: Option
    folds: bool = False
    human: bool = False
    field: ConfigField | None = None
    bounds: tuple[Bound, ...] = ()
    negates: str = ""


@dataclass(frozen=True)
class DeclaredOptions:
    """Every option of one version."""

    declared: tuple[DeclaredOption, ...]

    @property
    def table(self) -> OptionTable:
        """As link 4 sees it."""
        return OptionTable(tuple(entry.option for entry in self.declared))

    def get(self, name: str) -> DeclaredOption | None:
        """The option of that name or alias."""
        return next(
            (entry for entry in self.declared if name == entry.option.name or name in entry.option.aliases),
            None,
        )


@dataclass(frozen=True)
class Derivation:
    """What the source's own derivation of options from fields does beyond types.

    Attributes:
        human: fields whose numbers may be written with a suffix.
        optional_text: a field that is either a flag or a text becomes an option with an optional value.
        pairs: `--enable-x` brings `--disable-x` along.
        place: of the derivation.
    """

    human: frozenset[str]
    optional_text: bool
    pairs: bool
    place: Place


def read_derivation(tree: SourceTree) -> Derivation | None:
    """How this version makes options from fields; None when the function is not there.

    Raises:
        SourceError: a module cannot be read or parsed.
    """
    defined = find_definition(tree, ARGUMENTS, DERIVATION)
    if defined is None or not isinstance(defined.node, ast.FunctionDef):
        return None
    paired = find_definition(tree, PARSER, "EnableDisableAction") is not None
    return Derivation(_names_compared(defined.node), _has_optional_text(defined.node), paired, defined.place)


def derived(
    field: ConfigField, names: tuple[str, ...], place: Place, how: Derivation
) -> tuple[DeclaredOption, ...]:
    """The option, and for a boolean its negative forms, that a field becomes."""
    parts = field.type.parts
    choices: tuple[str, ...] = ()
    if "config" in parts:
        kind = ValueKind.JSON
    elif how.optional_text and parts == {"bool", "str", "None"}:
        kind = ValueKind.STRING
    elif "bool" in parts:
        return boolean(field.name, names, field.default, place, how, field)
    else:
        kind, choices = _kind(field)
    option = Option(names[0], names[1:], kind, choices, field.default, place)
    return (
        DeclaredOption(
            option,
            folds="enum" in parts,
            human=field.name in how.human,
            field=field,
            bounds=field.bounds,
        ),
    )


def boolean(
    name: str,
    names: tuple[str, ...],
    default: str,
    place: Place,
    how: Derivation,
    field: ConfigField | None = None,
) -> tuple[DeclaredOption, ...]:
    """A flag and the flags that switch it off."""
    long = [entry for entry in names if entry.startswith("--")]
    negative = [f"--no-{entry[2:]}" for entry in long]
    if how.pairs:
        negative += [f"--disable-{entry[9:]}" for entry in long if entry.startswith("--enable-")]
        negative += [f"--enable-{entry[10:]}" for entry in long if entry.startswith("--disable-")]
    plain = Option(names[0], names[1:], ValueKind.FLAG, (), default, place)
    off = Option(negative[0], tuple(negative[1:]), ValueKind.FLAG, (), "", place)
    return (
        DeclaredOption(plain, field=field),
        DeclaredOption(off, field=field, negates=names[0]),
    )


def _kind(field: ConfigField) -> tuple[ValueKind, tuple[str, ...]]:
    """As the derivation tests them, in its order."""
    kind = field.type
    parts = kind.parts
    choices = tuple(str(choice) for choice in kind.choices)
    if "Literal" in parts:
        return ValueKind.STRING, () if "str" in parts else choices
    if parts & {"list", "tuple", "set"}:
        element = kind.element
        inner = element is not None and "Literal" in element.parts and "str" not in element.parts
        return ValueKind.LIST, tuple(str(c) for c in element.choices) if inner and element else ()
    if "int" in parts:
        return ValueKind.INTEGER, ()
    if "float" in parts:
        return ValueKind.NUMBER, ()
    if "dict" in parts:
        return (ValueKind.STRING if parts & {"str", "other", "enum"} else ValueKind.JSON), ()
    return ValueKind.STRING, choices if "enum" in parts else ()


def _names_compared(function: Function) -> frozenset[str]:
    """Names of fields that the derivation treats by name: all of them get readable numbers."""
    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Set):
            names |= {e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)}
        elif isinstance(node, ast.Compare) and ast.unparse(node.left) == "name":
            for part in node.comparators:
                names |= {
                    e.value
                    for e in ast.walk(part)
                    if isinstance(e, ast.Constant) and isinstance(e.value, str)
                }
    return frozenset(names)


def _has_optional_text(function: Function) -> bool:
    return any(
        isinstance(node, ast.Compare)
        and isinstance(node.comparators[0], ast.Set)
        and {ast.unparse(item) for item in node.comparators[0].elts} == {"bool", "str", "type(None)"}
        for node in ast.walk(function)
    )
