"""What SGLang's parser says to each word of a command, by the declarations of the version at hand."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.command.binding import BoundFlag, Match, nearest_names
from draftproof.stacks.command.command import Command
from draftproof.stacks.command.words import shown
from draftproof.stacks.launch_facts import LaunchFinding, Option, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.sglang.launch.declared_option import DeclaredOption
from draftproof.stacks.sglang.launch.foreign_options import from_vllm
from draftproof.stacks.sglang.launch.given_values import GivenValues
from draftproof.stacks.sglang.launch.options import ArgumentTable
from draftproof.stacks.sglang.launch.renamed_options import other_name
from draftproof.stacks.stack import StackKind


def stack_findings(command: Command) -> Iterator[LaunchFinding]:
    """Whether the program is this stack's."""
    if command.stack is None:
        return
    agrees = command.stack is StackKind.SGLANG
    yield LaunchFinding(
        check="stack-agrees",
        subject=" ".join(command.program[-2:]),
        ruling=Ruling.HOLDS if agrees else Ruling.BREAKS,
        claim="The command starts this stack's server.",
        expected="sglang serve, or python -m sglang.launch_server",
        observed=f"starts {command.stack.title}",
        remedy="" if agrees else f"--stack {command.stack.value}, or SGLang's own command",
    )


def flag_findings(values: GivenValues, arguments: ArgumentTable) -> Iterator[LaunchFinding]:
    """Findings about the names and values of options."""
    for bound in values.bound.flags:
        yield _existence(bound, arguments)
        yield from _retirement(bound, arguments)
    yield from _values(values)
    yield from _repetitions(values)
    for word in values.bound.positionals:
        yield _value_finding(
            shown(word), Ruling.BREAKS, "belongs to no option, and the parser refuses it", "leave it out"
        )
    yield from _required(values, arguments)


def _existence(bound: BoundFlag, arguments: ArgumentTable) -> LaunchFinding:
    flag = bound.flag
    if bound.option is not None:
        how = {
            Match.NAME: "is declared",
            Match.ALIAS: f"is another name of {bound.option.name}",
            Match.ABBREVIATION: f"is the beginning of {bound.option.name} only, as which it is taken",
        }[bound.match]
        return _existence_finding(flag.name, Ruling.HOLDS, how, "", bound.option.place)
    renamed = other_name(flag.name, arguments.table)
    if renamed is not None:
        return _existence_finding(
            flag.name,
            Ruling.BREAKS,
            f"is not an option of this version, which calls it {renamed.name}",
            renamed.name,
            renamed.place,
        )
    foreign = from_vllm(flag)
    if foreign is not None:
        meaning = foreign.meaning(flag)
        remark = f" ({foreign.remark})" if foreign.remark else ""
        return _existence_finding(
            flag.name,
            Ruling.BREAKS,
            f"is an option of vLLM, not of SGLang{remark}",
            meaning or "leave it out",
        )
    if bound.match is Match.AMBIGUOUS:
        return _existence_finding(
            flag.name,
            Ruling.BREAKS,
            f"is the beginning of {len(bound.candidates)} options, which the parser refuses",
            " or ".join(bound.candidates[:4]),
        )
    near = nearest_names(flag.name, arguments.table)
    places = _places(arguments.declaration(near[0])) if near else ()
    remedy = f"{' or '.join(near)}, if that is meant" if near else "leave it out"
    return _existence_finding(flag.name, Ruling.BREAKS, "is not an option of this version", remedy, *places)


def _places(declared: DeclaredOption | None) -> tuple[Place, ...]:
    return () if declared is None else (declared.option.place,)


def _retirement(bound: BoundFlag, arguments: ArgumentTable) -> Iterator[LaunchFinding]:
    option = bound.option
    if option is None or not option.deprecated:
        return
    declared = arguments.declaration(option.name)
    stops = declared.stops if declared is not None else ""
    if stops:
        yield _existence_finding(
            bound.flag.name, Ruling.BREAKS, f"is retired and stops the start: {stops}", stops, option.place
        )
    else:
        yield _existence_finding(
            bound.flag.name, Ruling.WARNS, f"is deprecated: {option.deprecated}", "", option.place
        )


def _existence_finding(
    subject: str, ruling: Ruling, observed: str, remedy: str = "", *places: Place
) -> LaunchFinding:
    return LaunchFinding(
        check="option-exists",
        subject=subject,
        ruling=ruling,
        claim="Every option of the command exists in this version.",
        expected="an option of that name among those that the source declares",
        observed=observed,
        remedy=remedy,
        places=places,
    )


def _values(values: GivenValues) -> Iterator[LaunchFinding]:
    refused = {bad.flag for bad in values.bad}
    for bad in values.bad:
        yield _value_finding(str(bad.flag), Ruling.BREAKS, bad.sentence, "", bad.declared.option.place)
    for bound in values.bound.flags:
        if bound.option is not None and bound.flag not in refused and bound.flag.values:
            yield _value_finding(str(bound.flag), Ruling.HOLDS, "is taken", "", bound.option.place)


def _repetitions(values: GivenValues) -> Iterator[LaunchFinding]:
    seen: dict[str, BoundFlag] = {}
    for bound in values.bound.flags:
        option: Option | None = bound.option
        if option is None:
            continue
        earlier = seen.get(option.name)
        if earlier is not None and earlier.flag.values != bound.flag.values:
            yield _value_finding(
                str(bound.flag),
                Ruling.WARNS,
                f"counts instead of {earlier.flag}, which is given earlier",
                "give it once",
                option.place,
            )
        seen[option.name] = bound


def _required(values: GivenValues, arguments: ArgumentTable) -> Iterator[LaunchFinding]:
    for declared in arguments.declared:
        refused = any(bad.declared is declared for bad in values.bad)
        if declared.required and not values.given(declared.field) and not refused:
            yield LaunchFinding(
                check="model-path" if declared.field == "model_path" else "option-value",
                subject=declared.option.name,
                ruling=Ruling.BREAKS,
                claim="Every option that the parser insists on is given.",
                expected=f"{declared.option.name} with a value",
                observed="is not given, and the parser insists on it",
                remedy=f"{declared.option.name} ...",
                places=(declared.option.place,),
            )


def _value_finding(
    subject: str, ruling: Ruling, observed: str, remedy: str = "", *places: Place
) -> LaunchFinding:
    return LaunchFinding(
        check="option-value",
        subject=subject,
        ruling=ruling,
        claim="Every value of the command is one that the option takes.",
        expected="values of the declared type, among the declared choices",
        observed=observed,
        remedy=remedy,
        places=places,
    )
