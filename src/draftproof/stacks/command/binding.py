"""Gives a command's words back to the options that take them, by a stack's own option table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum

from draftproof.stacks.command.command import Command, GivenFlag
from draftproof.stacks.launch_facts import Option, OptionTable, ValueKind


class Match(Enum):
    """How a typed name was found in an option table."""

    NAME = "its name"
    ALIAS = "another name of the option"
    ABBREVIATION = "the beginning of its name"
    AMBIGUOUS = "the beginning of several names"
    MISSING = "no name of an option"


@dataclass(frozen=True)
class BoundFlag:
    """A typed option with what the table says about it.

    Attributes:
        flag: as typed, with only the words that belong to it.
        option: the option; None when there is none, or several.
        match: how it was found.
        candidates: the options that the beginning fits, when it is ambiguous.
    """

    flag: GivenFlag
    option: Option | None
    match: Match
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoundCommand:
    """A command whose words are all accounted for.

    Attributes:
        command: as typed.
        flags: its options, in order.
        positionals: words that belong to no option, those between options included.
    """

    command: Command
    flags: tuple[BoundFlag, ...]
    positionals: tuple[str, ...]

    def given(self, name: str) -> BoundFlag | None:
        """The last flag that means the option of that name, however it was spelled."""
        found = [bound for bound in self.flags if bound.option is not None and bound.option.name == name]
        return found[-1] if found else None

    def value(self, name: str) -> str | None:
        """The value given for the option of that name; None when it was not given, or has none."""
        bound = self.given(name)
        return bound.flag.value if bound is not None else None


def exact_spelling(name: str) -> str:
    """For stacks whose parser takes names as they are."""
    return name


def bind(
    command: Command, table: OptionTable, spelling: Callable[[str], str] = exact_spelling
) -> BoundCommand:
    """Finds each typed option in a table and gives back the words that it does not take.

    Args:
        command: as typed.
        table: the options of the version.
        spelling: the stack's own normalisation of a typed name ("_" read as "-").
    """
    flags: list[BoundFlag] = []
    positionals = list(command.positionals)
    for flag in command.flags:
        option, match, candidates = look_up(spelling(flag.name), table)
        own, rest = _own_words(flag, option)
        flags.append(BoundFlag(replace(flag, values=own), option, match, candidates))
        positionals.extend(rest)
    return BoundCommand(command, tuple(flags), tuple(positionals))


def look_up(name: str, table: OptionTable) -> tuple[Option | None, Match, tuple[str, ...]]:
    """The option that a typed name means, found as argparse does: exactly, or by a unique beginning."""
    option = table.get(name)
    if option is not None:
        return option, Match.NAME if option.name == name else Match.ALIAS, ()
    if not name.startswith("--") or len(name) < 3:
        return None, Match.MISSING, ()
    begun = [
        entry for entry in table.options if any(n.startswith(name) for n in (entry.name, *entry.aliases))
    ]
    if len(begun) == 1:
        return begun[0], Match.ABBREVIATION, ()
    if begun:
        return None, Match.AMBIGUOUS, tuple(entry.name for entry in begun)
    return None, Match.MISSING, ()


def nearest_names(name: str, table: OptionTable, count: int = 3) -> tuple[str, ...]:
    """The names of a version's options that look most like a typed one, the nearest first."""
    names = [known for option in table.options for known in (option.name, *option.aliases)]
    return tuple(get_close_matches(name, names, n=count, cutoff=0.7))


def _own_words(flag: GivenFlag, option: Option | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if option is None or option.kind is ValueKind.LIST:
        return flag.values, ()
    takes = 1 if flag.attached or option.kind is not ValueKind.FLAG else 0
    return flag.values[:takes], flag.values[takes:]
