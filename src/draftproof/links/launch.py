"""Link 4: a launch command switches the head on in this version, and nothing undoes it on the way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.evidence import EvidenceItem, Link, LinkReport, Note, Verdict, information
from draftproof.links.defect_claims import defect_items
from draftproof.links.launch_claims import finding_items, resolution_items
from draftproof.links.progress import NoProgress, Progress
from draftproof.links.served import served_checkpoint
from draftproof.links.stack_places import locations
from draftproof.stacks.command.command import Command
from draftproof.stacks.command.planned import planned_command
from draftproof.stacks.defect import DefectLink
from draftproof.stacks.launch_facts import LaunchJudgement, LaunchPlan, OptionTable
from draftproof.stacks.reading import Reading
from draftproof.stacks.rules import StackRules
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack
from draftproof.stacks.witness import ParserAnswer, ask_parser, parser_findings

_LIMITS = (
    "that the stack's own dependencies read the command in the same way",
    "what plugins and configuration files of the machine change",
)


@dataclass(frozen=True)
class JudgedLaunch:
    """A command with what was found about it.

    Attributes:
        command: the user's, or the proposed one.
        given: the user gave it.
        plan: the proposed command with its reasons.
        judgement: of `command`.
        parser: what the installed stack's own parser says; not understood when it could not be asked.
    """

    command: Command
    given: bool
    plan: LaunchPlan
    judgement: LaunchJudgement
    parser: Reading[ParserAnswer]


def judged_launch(
    stack: Stack,
    rules: StackRules,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    command: Command | None,
) -> JudgedLaunch:
    """The user's command, or else the proposed one, judged by the stack's rules.

    Where the stack is installed, its own argument parser is asked too, in a process of its own.

    Raises:
        StackError: the stack's files cannot be read at all.
    """
    plan = rules.plan(stack, checkpoint, situation)
    chosen = command if command is not None else planned_command(plan, stack.kind)
    judgement = rules.judge(stack, checkpoint, situation, chosen)
    parser = ask_parser(stack, chosen)
    if parser.is_found:
        table = rules.options(stack).value or OptionTable(())
        judgement = replace(judgement, findings=(*judgement.findings, *parser_findings(parser, table)))
    return JudgedLaunch(chosen, command is not None, plan, judgement, parser)


def check_launch(
    checkpoint: Checkpoint | ServedCheckpoint,
    stack: Stack,
    rules: StackRules,
    situation: Situation | None = None,
    command: Command | None = None,
    progress: Progress | None = None,
) -> LinkReport:
    """Runs link 4.

    Args:
        checkpoint: the files, or what a stack gets to see of them.
        stack: the stack to look at.
        rules: that stack's rules.
        situation: where it is to be served; None for nowhere in particular.
        command: the user's; None judges the proposed one by the same rules.
        progress: is told how far the link is.

    Raises:
        StackError: the stack's files cannot be read at all.
    """
    start = time.perf_counter()
    progress = progress or NoProgress()
    step = f"launch of {stack.label}"
    progress.advance(step, 0, 1)
    served = checkpoint if isinstance(checkpoint, ServedCheckpoint) else served_checkpoint(checkpoint)
    launch = judged_launch(stack, rules, served, situation or Situation(), command)
    report = launch_report(stack.tree.root, launch, start)
    progress.advance(step, 1, 1)
    return report


def launch_report(root: Path, launch: JudgedLaunch, start: float | None = None) -> LinkReport:
    """Link 4 of a command that was judged already.

    Args:
        root: folder of the stack's source, for the commands.
        launch: the command and what was found.
        start: value of `time.perf_counter` when the work began; None for now.
    """
    begun = time.perf_counter() if start is None else start
    items = tuple(launch_items(root, launch))
    return LinkReport(Link.LAUNCH, items, time.perf_counter() - begun, _LIMITS)


def launch_items(root: Path, launch: JudgedLaunch) -> Iterator[EvidenceItem]:
    """The claims of link 4, in the order in which a stack meets a command."""
    yield _command_item(launch)
    findings = finding_items(root, launch.judgement.findings)
    resolution = resolution_items(root, launch.judgement.resolved)
    yield from sorted((*findings, *resolution), key=lambda item: _rank(item.check))
    yield from defect_items(root, DefectLink.LAUNCH, launch.judgement.defects)


_ORDER = (
    "stack-agrees",
    "option-exists",
    "option-value",
    "options-together",
    "parser-agrees",
    "starts",
    "model-path",
    "algorithm-accepted",
    "speculation-on",
    "draft-tokens-agree",
    "draft-tokens-in-force",
    "draft-weights",
    "depth-found",
    "lossless",
    "unchanged",
)
"""Claims that come first; those of a stack's own come after them, in the order of its findings."""


def _rank(check: str) -> int:
    return _ORDER.index(check) if check in _ORDER else len(_ORDER)


def _command_item(launch: JudgedLaunch) -> EvidenceItem:
    whose = "given" if launch.given else "proposed"
    return EvidenceItem(
        check="command",
        claim="There is a command to judge, and every word of it has a place.",
        verdict=Verdict.PROVEN,
        expected="a launch command",
        observed=f"{whose}: {launch.command}",
        notes=tuple(_plan_notes(launch)),
    )


def _plan_notes(launch: JudgedLaunch) -> Iterator[Note]:
    yield information(launch.parser.sentence)
    if launch.given:
        yield information(f"proposed instead: {proposed_text(launch.plan)}")
        return
    for variable in launch.plan.environment:
        yield information(f"{variable.name}={variable.value}: {variable.reason}", *locations(variable.places))
    for flag in launch.plan.flags:
        words = f"{flag.name} {flag.value}" if flag.value is not None else flag.name
        yield information(f"{words}: {flag.reason}", *locations(flag.places))


def proposed_text(plan: LaunchPlan) -> str:
    """A proposed command as a shell would read it, variables in front."""
    flags = Command((), plan.program, (), plan.words[len(plan.program) :])
    variables = " ".join(f"{entry.name}={entry.value}" for entry in plan.environment)
    return f"{variables} {flags}" if variables else str(flags)
