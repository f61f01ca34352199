"""A command's options, one by one: whether this version of vLLM has them and takes their values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from draftproof.stacks.command.binding import BoundCommand, BoundFlag, Match, bind, nearest_names
from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import LaunchFinding, Option, OptionTable, Ruling
from draftproof.stacks.vllm.launch.declared_options import DeclaredOptions
from draftproof.stacks.vllm.launch.former_options import advice_for
from draftproof.stacks.vllm.launch.option_values import problem_with

EXISTS = "option-exists"
VALUE = "option-value"
_EXISTS_CLAIM = "Every option of the command exists in this version."
_VALUE_CLAIM = "Every value of the command is one that the option takes."
_LEVEL = re.compile(r"-O=?\w*")


def spelled(name: str) -> str:
    """A name as vLLM's parser reads it: "_" is "-" before the first dot, and "-O3" is a long option."""
    if _LEVEL.fullmatch(name):
        return "--optimization-level"
    if not name.startswith("--"):
        return name.partition(".")[0]
    return name.partition(".")[0].replace("_", "-")


def bound_to(command: Command, options: DeclaredOptions) -> BoundCommand:
    """The command with each word given to its option."""
    return bind(command, options.table, spelled)


def flag_findings(bound: BoundCommand, options: DeclaredOptions) -> Iterator[LaunchFinding]:
    """What is to say about each option of the command."""
    for flag in bound.flags:
        if flag.option is None:
            yield _unknown(flag, options.table)
        else:
            yield _known(flag, flag.option, options)


def _unknown(flag: BoundFlag, table: OptionTable) -> LaunchFinding:
    name = flag.flag.name
    claim = _EXISTS_CLAIM
    if flag.match is Match.AMBIGUOUS:
        observed = f"it begins {', '.join(flag.candidates)}; the parser refuses what may mean several"
        return _broken(EXISTS, flag, claim, observed, f"write one of {', '.join(flag.candidates)} in full")
    origin, remedy = advice_for(spelled(name), flag.flag.value, table)
    near = nearest_names(spelled(name), table)
    if not remedy:
        remedy = f"did you mean {' or '.join(near)}?" if near else f"leave {name} out"
    observed = f"it is not among the {len(table.options)} options of this version"
    if origin:
        observed += f"; it is {origin}"
    return _broken(EXISTS, flag, claim, observed, remedy)


def _broken(check: str, flag: BoundFlag, claim: str, observed: str, remedy: str) -> LaunchFinding:
    return LaunchFinding(
        check, str(flag.flag), Ruling.BREAKS, claim, "an option of `vllm serve`", observed, remedy
    )


def _known(flag: BoundFlag, option: Option, options: DeclaredOptions) -> LaunchFinding:
    declared = options.get(option.name)
    problem = problem_with(flag.flag, declared) if declared is not None else ""
    subject = str(flag.flag)
    places = (option.place,)
    expected = f"{option.name} with {option.kind.value}"
    if option.choices:
        expected = f"{option.name} with one of {', '.join(option.choices)}"
    if problem:
        remedy = f"give {option.name} {_example(option)}"
        return LaunchFinding(
            VALUE, subject, Ruling.BREAKS, _VALUE_CLAIM, expected, f"the value {problem}", remedy, places
        )
    if option.deprecated:
        observed = "it is there, and marked as deprecated"
        return LaunchFinding(EXISTS, subject, Ruling.WARNS, _EXISTS_CLAIM, expected, observed, "", places)
    if flag.match is Match.ABBREVIATION:
        observed = f"it is the beginning of {option.name} alone, which the parser completes"
        remedy = f"write {option.name}"
        return LaunchFinding(EXISTS, subject, Ruling.WARNS, _EXISTS_CLAIM, expected, observed, remedy, places)
    return LaunchFinding(EXISTS, subject, Ruling.HOLDS, _EXISTS_CLAIM, expected, "as declared", "", places)


def _example(option: Option) -> str:
    return f"one of {', '.join(option.choices)}" if option.choices else option.kind.value
