"""The words of a command of draftproof, given to the options that they mean, as its parser does it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from draftproof.checkpoint.bounded_json import JsonLimits, JsonProblem, parse_object
from draftproof.stacks.command.binding import Match, bind
from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import ValueKind
from draftproof.stacks.native.options import DeclaredCommand, DeclaredOption
from draftproof.stacks.native.own_source import MAIN
from draftproof.stacks.source import SourceTree

_JSON = JsonLimits(values=100, depth=4)
_TRUE, _FALSE = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")
COMMAND_LINE, ENVIRONMENT = "given", "environment"


@dataclass(frozen=True)
class GivenWord:
    """An option of a command, or a variable that stands for one.

    Attributes:
        text: as typed.
        name: of the option.
        value: None when it has none.
        declared: the option; None when there is none.
        source: where it stands.
    """

    text: str
    name: str
    value: str | None
    declared: DeclaredOption | None
    source: str = COMMAND_LINE

    @property
    def problem(self) -> str:
        """What is expected instead of the value; empty when it is accepted."""
        declared = self.declared
        if declared is None:
            return ""
        kind = declared.option.kind
        if kind is ValueKind.FLAG:
            return self._flag_problem()
        if self.value is None:
            return str(kind.value)
        if declared.option.choices and self._chosen is None:
            return f"one of {', '.join(declared.option.choices)}"
        return self._number_problem(declared) if kind is not ValueKind.JSON else self._json_problem()

    @property
    def converted(self) -> object:
        """The value as the command's function gets it; only where there is no problem."""
        declared = self.declared
        assert declared is not None
        kind, value = declared.option.kind, self.value or ""
        if kind is ValueKind.FLAG:
            is_on = self.value is None or value.lower() in _TRUE
            return is_on is not (self.name == f"--no-{declared.option.name[2:]}")
        if declared.members:
            return dict(declared.members)[self._chosen or ""]
        if kind is ValueKind.INTEGER:
            return int(value)
        return float(value) if kind is ValueKind.NUMBER else value

    @property
    def _chosen(self) -> str | None:
        declared = self.declared
        value = self.value or ""
        for choice in declared.option.choices if declared else ():
            if value == choice or (declared and declared.ignores_case and value.lower() == choice.lower()):
                return choice
        return None

    def _flag_problem(self) -> str:
        if self.value is None:
            return ""
        if self.source == ENVIRONMENT:
            return "" if self.value.lower() in (*_TRUE, *_FALSE) else "true or false"
        return "no value"

    def _number_problem(self, declared: DeclaredOption) -> str:
        kind = declared.option.kind
        if kind not in (ValueKind.INTEGER, ValueKind.NUMBER):
            return ""
        try:
            number = int(self.value or "") if kind is ValueKind.INTEGER else float(self.value or "")
        except ValueError:
            return str(kind.value)
        if declared.smallest is not None and not number >= declared.smallest:
            return f"{declared.smallest:g} or more"
        if declared.largest is not None and not number <= declared.largest:
            return f"{declared.largest:g} or less"
        return ""

    def _json_problem(self) -> str:
        try:
            parse_object((self.value or "").encode(errors="replace"), _JSON)
        except JsonProblem:
            return ValueKind.JSON.value
        return ""


@dataclass(frozen=True)
class GivenWords:
    """A command whose words are all accounted for.

    Attributes:
        words: variables first, which the command line wins over.
        positionals: words without an option.
    """

    words: tuple[GivenWord, ...]
    positionals: tuple[str, ...]

    def of(self, parameter: str) -> GivenWord | None:
        """The word that counts for a parameter; None when none is given."""
        own = [each for each in self.words if each.declared and each.declared.parameter == parameter]
        return own[-1] if own else None

    def counts(self, word: GivenWord) -> bool:
        """Whether a word is looked at: the last one for its option, or any that may be repeated."""
        declared = word.declared
        if declared is None:
            return False
        last = self.of(declared.parameter)
        return word is last or (declared.is_repeated and last is not None and word.source == last.source)

    @property
    def values(self) -> Mapping[str, object]:
        """What the function gets, by parameter; only where no word that counts has a problem."""
        values: dict[str, object] = {}
        for each in self.words:
            declared = each.declared
            if declared is None or not self.counts(each):
                continue
            if not declared.is_repeated:
                values[declared.parameter] = each.converted
            elif each.source == ENVIRONMENT:
                values[declared.parameter] = (each.value or "").split()
            else:
                typed = [word for word in self.words if word.declared is declared and self.counts(word)]
                values[declared.parameter] = [word.converted for word in typed]
        return values


def given_words(tree: SourceTree, command: Command, declared: DeclaredCommand) -> GivenWords:
    """The words of a command.

    Raises:
        SourceError: the file with the names of variables cannot be read or parsed.
    """
    bound = bind(command, declared.table)
    words = list(_variables(tree, command, declared))
    for each in bound.flags:
        # The parser takes whole names only.
        is_whole = each.match in (Match.NAME, Match.ALIAS)
        option = declared.declared(each.flag.name) if is_whole else None
        words.append(GivenWord(str(each.flag), each.flag.name, each.flag.value, option))
    return GivenWords(tuple(words), bound.positionals)


def _variables(tree: SourceTree, command: Command, declared: DeclaredCommand) -> Iterator[GivenWord]:
    prefix = _prefix(tree, declared.name)
    if not prefix:
        return
    # The later of two variables of one name counts, and an empty one is like none.
    given = {entry.name: entry.value for entry in command.environment if entry.name.startswith(f"{prefix}_")}
    given = {name: value for name, value in given.items() if value}
    named = {f"{prefix}_{name.lstrip('-').replace('-', '_').upper()}": name for name in _long_names(declared)}
    filled: set[DeclaredOption] = set()
    # Of several names of an option the first one counts.
    for variable, name in named.items():
        option = declared.declared(name)
        if variable in given and option is not None and option not in filled:
            filled.add(option)
            yield GivenWord(f"{variable}={given[variable]}", name, given[variable], option, ENVIRONMENT)
    for variable, value in given.items():
        if variable not in named:
            yield GivenWord(f"{variable}={value}", variable, value, None, ENVIRONMENT)


def _long_names(declared: DeclaredCommand) -> Iterator[str]:
    for each in declared.options:
        yield from (name for name in (each.option.name, *each.option.aliases) if name.startswith("--"))


def _prefix(tree: SourceTree, command: str) -> str:
    """What the names of variables begin with that stand for a command's options; empty for none."""
    for node in ast.walk(tree.syntax(MAIN)) if tree.has(MAIN) else ():
        if isinstance(node, ast.Call) and node.args:
            first, named = node.args[0], {each.arg: each.value for each in node.keywords}
            prefix = named.get("environment")
            if (
                isinstance(first, ast.Constant)
                and first.value == command
                and isinstance(prefix, ast.Constant)
            ):
                return str(prefix.value)
    return ""
