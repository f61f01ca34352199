"""The options of SGLang's server in the version at hand, from the place where that version declares them.

Two forms are known: `parser.add_argument(...)` calls in `ServerArgs.add_cli_args`, and annotated fields that
`add_cli_args_from_dataclass` turns into options, with a few calls beside them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from draftproof.errors import SourceError
from draftproof.stacks.launch_facts import OptionTable
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.sglang.launch.argparse_options import argparse_declarations
from draftproof.stacks.sglang.launch.declared_option import (
    Declaration,
    DeclaredOption,
    declared_option,
    last_name,
)
from draftproof.stacks.sglang.launch.field_options import AnnotatedField, annotated_fields, field_declaration
from draftproof.stacks.source import SourceTree

SERVER_ARGS = "sglang/srt/server_args.py"
FIELD_FOLDER = "sglang/srt/arg_groups/fields"
FILLER = "add_cli_args"
FIELD_FILLER = "add_cli_args_from_dataclass"
NAMESPACES = "_INPUT_NAMESPACES"
FEWEST = 50
"""A server of this kind has hundreds of options; fewer than this means that a form was not recognised."""


@dataclass(frozen=True)
class ArgumentTable:
    """Everything that a version declares about its server's arguments.

    Attributes:
        declared: the options.
        fields: every field of the arguments, also those that are no option, in the order of the source.
    """

    declared: tuple[DeclaredOption, ...]
    fields: tuple[AnnotatedField, ...]

    @property
    def table(self) -> OptionTable:
        """As every stack's options."""
        return OptionTable(tuple(entry.option for entry in self.declared))

    def of_field(self, name: str) -> DeclaredOption | None:
        """The option that sets a field."""
        return next((entry for entry in self.declared if entry.field == name), None)

    def declaration(self, name: str) -> DeclaredOption | None:
        """The option of that name or alias."""
        return next(
            (entry for entry in self.declared if name in (entry.option.name, *entry.option.aliases)), None
        )


def read_options(tree: SourceTree) -> Reading[OptionTable]:
    """The options of the server."""
    reading = read_arguments(tree)
    if reading.value is None:
        return Reading(None, reading.sentence, reading.places, reading.understood)
    return found(reading.value.table, reading.sentence, *reading.places)


def read_arguments(tree: SourceTree) -> Reading[ArgumentTable]:
    """The options of the server with all that their declarations say."""
    looked_for = f"looked for class ServerArgs with a method {FILLER} in {SERVER_ARGS}"
    try:
        module = tree.syntax(SERVER_ARGS)
    except SourceError as error:
        return not_understood(f"{looked_for}: {error}")
    server_args = next(
        (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "ServerArgs"), None
    )
    function = next(
        (
            n
            for n in (server_args.body if server_args else [])
            if isinstance(n, ast.FunctionDef) and n.name == FILLER
        ),
        None,
    )
    if server_args is None or function is None:
        return not_understood(f"{looked_for}, and there is none")
    fields = list(annotated_fields(SERVER_ARGS, server_args.body))
    if _calls(function, FIELD_FILLER):
        try:
            fields.extend(_namespace_fields(tree, module))
        except SourceError as error:
            return not_understood(f"looked for the fields of the arguments in {FIELD_FOLDER}: {error}")
    defaults = {entry.name: entry.default for entry in fields if entry.default is not None}
    declarations = [
        *(d for entry in fields if (d := field_declaration(tree, entry)) is not None),
        *argparse_declarations(tree, SERVER_ARGS, function, defaults),
    ]
    renamed = _renamed_destinations(server_args)
    declared = tuple(
        replace(option, field=renamed.get(option.field, option.field))
        for option in map(declared_option, _once(declarations))
    )
    place = Place(SERVER_ARGS, function.lineno)
    if len(declared) < FEWEST:
        return not_understood(
            f"{FILLER} declares {len(declared)} options in a form that is known here, too few for a server",
            place,
        )
    return found(ArgumentTable(declared, tuple(fields)), f"{len(declared)} options are declared", place)


def _calls(function: ast.FunctionDef, name: str) -> bool:
    return any(isinstance(node, ast.Call) and last_name(node.func) == name for node in ast.walk(function))


def _namespace_fields(tree: SourceTree, module: ast.Module) -> Iterator[AnnotatedField]:
    """The fields of the classes that the arguments are assembled from."""
    used = {
        last_name(item)
        for statement in module.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.List)
        if any(isinstance(target, ast.Name) and target.id == NAMESPACES for target in statement.targets)
        for item in statement.value.elts
    }
    for file in tree.files(FIELD_FOLDER):
        for node in tree.syntax(file).body:
            if isinstance(node, ast.ClassDef) and node.name in used:
                yield from annotated_fields(file, node.body)


def _renamed_destinations(server_args: ast.ClassDef) -> dict[str, str]:
    """Fields by the parser's name for them, where `from_cli_args` has `args.field = args.other_name`."""
    renamed = {}
    for function in server_args.body:
        if not isinstance(function, ast.FunctionDef) or function.name != "from_cli_args":
            continue
        for node in function.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                for target in node.targets:
                    if isinstance(target, ast.Attribute):
                        renamed[node.value.attr] = target.attr
    return renamed


def _once(declarations: list[Declaration]) -> Iterator[Declaration]:
    """Declarations in order; one whose name was declared before is the same option on another branch."""
    seen: set[str] = set()
    for declaration in declarations:
        if not seen.intersection(declaration.names):
            yield declaration
        seen.update(declaration.names)
