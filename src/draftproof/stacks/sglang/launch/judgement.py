"""Link 4 for SGLang: a command, the user's or the proposed one, against the version at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.stacks.command.command import Command
from draftproof.stacks.fact_store import remember
from draftproof.stacks.launch_facts import LaunchFinding, LaunchJudgement, ResolvedLaunch, Ruling
from draftproof.stacks.parallel_findings import division_findings
from draftproof.stacks.place import Place
from draftproof.stacks.question import question_name
from draftproof.stacks.reading import Reading, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.launch.depth_findings import depth_findings
from draftproof.stacks.sglang.launch.flag_findings import flag_findings, stack_findings
from draftproof.stacks.sglang.launch.honesty_findings import honesty_findings, variable_findings
from draftproof.stacks.sglang.launch.in_force import exported
from draftproof.stacks.sglang.launch.kernel_findings import kernel_findings
from draftproof.stacks.sglang.launch.launch_context import LaunchContext, launch_context
from draftproof.stacks.sglang.launch.launch_defects import concerned, launch_defects
from draftproof.stacks.sglang.launch.model_findings import declared, model_findings
from draftproof.stacks.sglang.launch.options import read_arguments
from draftproof.stacks.sglang.launch.resolution import Resolver
from draftproof.stacks.sglang.launch.resolved_speculation import (
    changes,
    drafts_in_force,
    head_path,
    speculation_in_force,
)
from draftproof.stacks.sglang.launch.speculation_findings import (
    algorithm_findings,
    start_findings,
    triple_findings,
)
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree


@dataclass(frozen=True)
class _Judged:
    """The part of a judgement that follows from source, configs and command alone, and is kept."""

    findings: tuple[LaunchFinding, ...]
    resolved: ResolvedLaunch
    ranks: int = 1
    ranks_option: str = ""
    ranks_places: tuple[Place, ...] = ()
    concerned: tuple[str, ...] = ()


def judge(
    tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation, command: Command
) -> LaunchJudgement:
    """What the version makes of a command.

    Args:
        tree: the source.
        checkpoint: the model that it is to serve.
        situation: the deployment.
        command: as typed.
    """
    name = question_name("sglang-launch", checkpoint, situation, command)
    judged = remember(tree, name, lambda view: _judged(view, tree, checkpoint, situation, command), _Judged)
    return _judgement(tree, checkpoint, situation, judged)


def judge_afresh(
    tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation, command: Command
) -> LaunchJudgement:
    """As `judge`, without kept answers of earlier runs."""
    judged = _judged(tree, tree, checkpoint, situation, command)
    return _judgement(tree, checkpoint, situation, judged)


def _judgement(
    tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation, judged: _Judged
) -> LaunchJudgement:
    """A kept part with what follows from the tensors, which are no part of a question's name."""
    subject = f"{judged.ranks_option} {judged.ranks}"
    divisions = division_findings(checkpoint, judged.ranks, subject, judged.ranks_option, judged.ranks_places)
    return LaunchJudgement(
        (*judged.findings, *divisions),
        judged.resolved,
        launch_defects(tree, checkpoint, situation, judged.concerned),
    )


def _judged(
    tree: SourceTree, shared: SourceTree, checkpoint: ServedCheckpoint, situation: Situation, command: Command
) -> _Judged:
    reading = read_arguments(tree)
    if reading.value is None:
        lost: Reading[str] = not_understood(reading.sentence, *reading.places)
        finding = LaunchFinding(
            check="option-exists",
            subject="",
            ruling=Ruling.UNKNOWN,
            claim="Every option of the command exists in this version.",
            expected="a declaration of options in a form that is known here",
            observed=reading.sentence,
            places=reading.places,
        )
        resolved = ResolvedLaunch(lost, not_understood(reading.sentence), lost)
        return _Judged((*stack_findings(command), finding), resolved)
    resolver = Resolver(tree, reading.value, checkpoint, shared)
    context = launch_context(tree, reading.value, checkpoint, situation, command, resolver)
    option, places = declared(context, "tp_size")
    return _Judged(
        tuple(_findings(context)),
        resolved_launch(context),
        context.ranks,
        option,
        places,
        concerned(context.values),
    )


def resolved_launch(context: LaunchContext) -> ResolvedLaunch:
    """What is in force after the version's own resolution."""
    return ResolvedLaunch(
        algorithm=speculation_in_force(context),
        draft_tokens=drafts_in_force(context),
        draft_path=head_path(context),
        options=exported(context.resolution.after),
        changed=tuple(changes(context)),
        variables=tuple(context.environment.items()),
    )


def _findings(context: LaunchContext) -> Iterator[LaunchFinding]:
    yield from stack_findings(context.command)
    yield from flag_findings(context.values, context.arguments)
    yield from start_findings(context)
    yield from triple_findings(context)
    yield from algorithm_findings(context)
    yield from depth_findings(context)
    yield from model_findings(context)
    yield from honesty_findings(context)
    yield from variable_findings(context)
    yield from kernel_findings(context)
