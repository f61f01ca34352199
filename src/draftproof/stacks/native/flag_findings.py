"""Findings about the single words of a command of draftproof."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.command.binding import nearest_names
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.native.given_words import ENVIRONMENT, GivenWord, GivenWords
from draftproof.stacks.native.options import DeclaredCommand
from draftproof.stacks.native.own_source import CONFIG, constant
from draftproof.stacks.source import SourceTree

_EXISTS = "Every option of the command exists in this version."
_VALUES = "Every option has a value that it accepts."
DRAFT_TOKENS = "draft_tokens"


def existence(given: GivenWords, command: DeclaredCommand) -> Iterator[LaunchFinding]:
    """Whether every name is one of an option, and every other word an argument."""
    for each in given.words:
        if each.declared is not None:
            yield _finding("option-exists", each, Ruling.HOLDS, _EXISTS, "an option of this version", "there")
            continue
        near = nearest_names(each.name, command.table)
        remedy = f"nearest: {', '.join(near)}" if near else "leave it out"
        observed = f"draftproof {command.name} has no such option"
        # A variable that no option reads changes nothing.
        ruling = Ruling.WARNS if each.source == ENVIRONMENT else Ruling.BREAKS
        yield _finding("option-exists", each, ruling, _EXISTS, "an option of this version", observed, remedy)
    for word in given.positionals[len(command.arguments) :]:
        yield LaunchFinding(
            check="option-exists",
            subject=word,
            ruling=Ruling.BREAKS,
            claim=_EXISTS,
            expected="an option of this version",
            observed=f"draftproof {command.name} has no use for the word",
            remedy="leave it out",
            places=(command.place,),
        )


def values(tree: SourceTree, given: GivenWords) -> Iterator[LaunchFinding]:
    """Whether every option has a value that it accepts by itself."""
    for each in given.words:
        if not given.counts(each):
            continue
        problem = each.problem or _too_many_drafts(tree, each)
        if problem:
            seen = each.value or "nothing"
            yield _finding("option-value", each, Ruling.BREAKS, _VALUES, problem, seen, problem)
        else:
            yield _finding("option-value", each, Ruling.HOLDS, _VALUES, "a value that it accepts", "accepted")


def _too_many_drafts(tree: SourceTree, each: GivenWord) -> str:
    declared = each.declared
    most = constant(tree, CONFIG, "MAX_DRAFT_TOKENS")
    if declared is None or declared.parameter != DRAFT_TOKENS or most is None:
        return ""
    limit, place = most
    least = int(declared.smallest if declared.smallest is not None else 1)
    if isinstance(limit, int) and not least <= int(each.value or 0) <= limit:
        return f"from {least} to {limit} ({place})"
    return ""


def _finding(
    check: str,
    each: GivenWord,
    ruling: Ruling,
    claim: str,
    expected: str,
    observed: str,
    remedy: str = "",
) -> LaunchFinding:
    places = (each.declared.option.place,) if each.declared else ()
    return LaunchFinding(check, each.text, ruling, claim, expected, observed, remedy, places)
