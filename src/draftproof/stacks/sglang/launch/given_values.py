"""What SGLang's parser makes of the words of a command: a value for each field of its arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.stacks.command.binding import BoundCommand, BoundFlag, bind
from draftproof.stacks.command.command import Command, GivenFlag
from draftproof.stacks.command.words import shown
from draftproof.stacks.launch_facts import ValueKind
from draftproof.stacks.sglang.launch.declared_option import Arity, DeclaredOption
from draftproof.stacks.sglang.launch.options import ArgumentTable

_SCALED = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)")
_SCALES = {
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip


@dataclass(frozen=True)
class BadValue:
    """An option whose words the parser refuses.

    Attributes:
        flag: as typed.
        declared: the option.
        sentence: why.
    """

    flag: GivenFlag
    declared: DeclaredOption
    sentence: str


@dataclass(frozen=True)
class GivenValues:
    """A command as the parser reads it.

    Attributes:
        bound: its words by option.
        values: the value of each field that the command sets; the last of repeated options counts.
        bad: options whose values are refused.
    """

    bound: BoundCommand
    values: Mapping[str, object]
    bad: tuple[BadValue, ...]

    def given(self, field: str) -> bool:
        """The command sets the field."""
        return field in self.values

    def text(self, field: str) -> str | None:
        """A field's value as a word; None when the command does not set it."""
        value = self.values.get(field)
        return None if value is None else str(value)

    def number(self, field: str) -> int | None:
        """A field's value when the command sets it to an integer."""
        value = self.values.get(field)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


class _Refused(Exception):
    """The parser would refuse the value; the text says why."""


def given_values(command: Command, arguments: ArgumentTable) -> GivenValues:
    """Reads the words of a command by the declarations of a version."""
    bound = bind(_with_positional_model(command), arguments.table)
    values: dict[str, object] = {}
    bad: list[BadValue] = []
    for entry in bound.flags:
        declared = None if entry.option is None else arguments.declaration(entry.option.name)
        if declared is None:
            continue
        try:
            values[declared.field] = _value(entry, declared)
        except _Refused as refused:
            bad.append(BadValue(entry.flag, declared, str(refused)))
    return GivenValues(bound, values, tuple(bad))


def _with_positional_model(command: Command) -> Command:
    """`sglang serve MODEL ...` is `--model-path MODEL`; the stack's own entry point does the same."""
    if not command.positionals or command.program[-1:] != ("serve",):
        return command
    first, *rest = command.positionals
    flag = GivenFlag("--model-path", (first,), 0)
    return Command(command.environment, command.program, (flag, *command.flags), tuple(rest), command.stack)


def _value(entry: BoundFlag, declared: DeclaredOption) -> object:
    words = entry.flag.values
    if declared.arity is Arity.NONE:
        if words:
            raise _Refused(f"takes no value, and {shown(words[0])} is given")
        if declared.negative:
            return not entry.flag.name.startswith("--no-")
        return True if declared.constant is None else declared.constant
    if declared.arity in (Arity.SOME, Arity.ANY):
        if not words and declared.arity is Arity.SOME:
            raise _Refused("takes one or more values, and none is given")
        return [_typed(word, declared) for word in words]
    if not words:
        if declared.arity is Arity.OPTIONAL:
            return declared.constant
        raise _Refused("takes a value, and none is given")
    value = _typed(words[0], declared)
    return value if declared.constant is None or declared.arity is Arity.OPTIONAL else declared.constant


def _typed(word: str, declared: DeclaredOption) -> object:
    choices = declared.option.choices
    if choices and word not in choices:
        near = f"{', '.join(choices[:12])}{', ...' if len(choices) > 12 else ''}"
        raise _Refused(f"{shown(word)} is none of its choices: {near}")
    if declared.parser == "human_readable_int":
        return _scaled(word)
    if declared.option.kind is ValueKind.JSON or declared.parser == "loads":
        return _json(word)
    try:
        if declared.parser == "int":
            return int(word)
        if declared.parser == "float":
            return float(word)
    except ValueError as error:
        kind = "an integer" if declared.parser == "int" else "a number"
        raise _Refused(f"{shown(word)} is not {kind}") from error
    return word


def _scaled(word: str) -> int:
    match = _SCALED.fullmatch(word.strip())
    if match is not None:
        return int(float(match.group(1)) * _SCALES[match.group(2)])
    try:
        return int(word)
    except ValueError as error:
        raise _Refused(f"{shown(word)} is not an integer (32768, 32k, 32Ki)") from error


def _json(word: str) -> object:
    try:
        return json.loads(word)
    except (ValueError, RecursionError) as error:
        raise _Refused(f"{shown(word)} is no JSON: {error}") from error
