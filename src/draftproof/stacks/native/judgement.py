"""Link 4 for draftproof's own engine: a command of `draftproof generate`, option by option."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.command.binding import BoundCommand, BoundFlag, bind, nearest_names
from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import (
    LaunchFinding,
    LaunchJudgement,
    Option,
    OptionTable,
    ResolvedLaunch,
    Ruling,
    ValueKind,
)
from draftproof.stacks.native.options import read_options
from draftproof.stacks.native.own_source import BUILD, CONFIG, constant, function_place
from draftproof.stacks.native.plan import DEVICE, DRAFT_TOKENS, DRAFTER, DTYPE, NEXTN, WEIGHTS
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, absent, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree

_EXISTS = "Every option of the command exists in this version."
_VALUES = "Every option has a value that it accepts."


def judge(
    tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation, command: Command
) -> LaunchJudgement:
    """A command, and what the engine makes of it.

    Raises:
        SourceError: a file of the engine cannot be read or parsed.
    """
    reading = read_options(tree)
    if reading.value is None:
        open_answer: Reading[str] = not_understood(reading.sentence)
        finding = LaunchFinding(
            "option-exists", "", Ruling.UNKNOWN, _EXISTS, "a table of options", reading.sentence
        )
        count: Reading[int] = not_understood(reading.sentence)
        return LaunchJudgement((finding,), ResolvedLaunch(open_answer, count, open_answer))
    bound = bind(command, reading.value)
    findings = (
        *_existence(bound, reading.value),
        *_values(tree, bound),
        *_checkpoint_named(checkpoint, bound),
        *_one_device(situation),
        _lossless(tree),
    )
    return LaunchJudgement(findings, _resolved(tree, checkpoint, bound, reading.value))


def _existence(bound: BoundCommand, table: OptionTable) -> Iterator[LaunchFinding]:
    for each in bound.flags:
        if each.option is not None:
            yield _finding("option-exists", each, Ruling.HOLDS, _EXISTS, "an option of this version", "there")
            continue
        near = nearest_names(each.flag.name, table)
        remedy = f"nearest: {', '.join(near)}" if near else "leave it out"
        observed = "draftproof generate has no such option"
        if each.candidates:
            observed = f"it could be {', '.join(each.candidates)}"
        yield _finding(
            "option-exists", each, Ruling.BREAKS, _EXISTS, "an option of this version", observed, remedy
        )


def _values(tree: SourceTree, bound: BoundCommand) -> Iterator[LaunchFinding]:
    most = constant(tree, CONFIG, "MAX_DRAFT_TOKENS")
    for each in bound.flags:
        if each.option is None:
            continue
        problem = _problem(each.option, each.flag.value)
        if each.option.name == DRAFT_TOKENS and not problem and most is not None:
            limit, place = most
            if isinstance(limit, int) and not 1 <= int(each.flag.value or 0) <= limit:
                problem = f"from 1 to {limit} ({place})"
        if problem:
            yield _finding(
                "option-value",
                each,
                Ruling.BREAKS,
                _VALUES,
                problem,
                f"{each.flag.value or 'nothing'}",
                problem,
            )
        else:
            yield _finding("option-value", each, Ruling.HOLDS, _VALUES, "a value that it accepts", "accepted")


def _problem(option: Option, value: str | None) -> str:
    """What is expected instead of the value; empty when it is accepted."""
    if option.kind is ValueKind.FLAG:
        return ""
    if value is None:
        return str(option.kind.value)
    if option.choices and value.lower() not in option.choices:
        return f"one of {', '.join(option.choices)}"
    try:
        if option.kind is ValueKind.INTEGER:
            int(value)
        elif option.kind is ValueKind.NUMBER:
            float(value)
    except ValueError:
        return str(option.kind.value)
    return ""


def _checkpoint_named(checkpoint: ServedCheckpoint, bound: BoundCommand) -> Iterator[LaunchFinding]:
    first = bound.positionals[0] if bound.positionals else ""
    yield LaunchFinding(
        check="model-path",
        subject=first,
        ruling=Ruling.HOLDS if first == checkpoint.name else Ruling.BREAKS,
        claim="The command runs this checkpoint.",
        expected=checkpoint.name,
        observed=first or "no checkpoint",
        remedy="" if first == checkpoint.name else f"name {checkpoint.name} first",
    )


def _one_device(situation: Situation) -> Iterator[LaunchFinding]:
    ranks = situation.tensor_parallel
    if ranks > 1:
        yield LaunchFinding(
            check="tensor-parallel",
            subject=f"{ranks} GPUs",
            ruling=Ruling.BREAKS,
            claim="The engine splits a layer over that many GPUs.",
            expected=f"an option that splits layers over {ranks} devices",
            observed="this engine runs on one device",
            remedy="SGLang or vLLM for several GPUs",
        )


def _lossless(tree: SourceTree) -> LaunchFinding:
    """Acceptance is by equality with the target's own draw: nothing switches it."""
    place = function_place(tree, "draftproof/kernels/acceptance/reference.py", "count_accepted")
    places = (place,) if place else ()
    return LaunchFinding(
        check="lossless",
        subject="",
        ruling=Ruling.HOLDS,
        claim="No option lets a draft stand that the target would not have drawn.",
        expected="no option for acceptance",
        observed="a draft is accepted when it equals the target's own draw; there is no option for it",
        places=places,
    )


def _resolved(
    tree: SourceTree, checkpoint: ServedCheckpoint, bound: BoundCommand, table: OptionTable
) -> ResolvedLaunch:
    drafter, place = _value(bound, table, DRAFTER)
    count, count_place = _value(bound, table, DRAFT_TOKENS)
    wiring = [p for p in (place, function_place(tree, BUILD, "wire_engine")) if p]
    algorithm: Reading[str]
    if drafter.lower() == NEXTN:
        algorithm = found(NEXTN, "the head drafts", *wiring)
    elif drafter:
        algorithm = absent(f"{DRAFTER} {drafter} does not draft with the head", *wiring)
    else:
        algorithm = not_understood(f"looked for an option {DRAFTER}")
    tokens: Reading[int] = not_understood(f"looked for a number after {DRAFT_TOKENS}")
    if count.isdigit():
        tokens = found(int(count), f"K={count}", *((count_place,) if count_place else ()))
    require = function_place(tree, BUILD, "_require_head")
    path = found(
        checkpoint.name,
        "the head's weights are those of the checkpoint itself, and must be there",
        *((require,) if require else ()),
    )
    options = tuple(
        (name, value, "given" if bound.given(name) else "default")
        for name in (DEVICE, DTYPE, WEIGHTS)
        if (value := _value(bound, table, name)[0])
    )
    return ResolvedLaunch(algorithm, tokens, path, options)


def _value(bound: BoundCommand, table: OptionTable, name: str) -> tuple[str, Place | None]:
    """The value in force: given, or the default."""
    option = table.get(name)
    if option is None:
        return "", None
    given = bound.value(option.name)
    return (option.default if given is None else given), option.place


def _finding(
    check: str,
    each: BoundFlag,
    ruling: Ruling,
    claim: str,
    expected: str,
    observed: str,
    remedy: str = "",
) -> LaunchFinding:
    places = (each.option.place,) if each.option else ()
    return LaunchFinding(check, str(each.flag), ruling, claim, expected, observed, remedy, places)
