"""Link 4 for SGLang: a command, the user's or the proposed one, against the version at hand."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import LaunchFinding, LaunchJudgement, ResolvedLaunch, Ruling
from draftproof.stacks.reading import Reading, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.flag_findings import flag_findings, stack_findings
from draftproof.stacks.sglang.honesty_findings import honesty_findings, variable_findings
from draftproof.stacks.sglang.in_force import exported
from draftproof.stacks.sglang.kernel_findings import kernel_findings
from draftproof.stacks.sglang.launch_context import LaunchContext, launch_context
from draftproof.stacks.sglang.launch_defects import launch_defects
from draftproof.stacks.sglang.model_findings import model_findings
from draftproof.stacks.sglang.options import read_arguments
from draftproof.stacks.sglang.resolution import Resolver
from draftproof.stacks.sglang.resolved_speculation import (
    changes,
    drafts_in_force,
    head_path,
    speculation_in_force,
)
from draftproof.stacks.sglang.speculation_findings import (
    algorithm_findings,
    start_findings,
    triple_findings,
)
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree


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
    reading = read_arguments(tree)
    defects = launch_defects(tree, checkpoint, situation)
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
        return LaunchJudgement((*stack_findings(command), finding), resolved, defects)
    resolver = Resolver(tree, reading.value, checkpoint)
    context = launch_context(tree, reading.value, checkpoint, situation, command, resolver)
    return LaunchJudgement(tuple(_findings(context)), resolved_launch(context), defects)


def resolved_launch(context: LaunchContext) -> ResolvedLaunch:
    """What is in force after the version's own resolution."""
    return ResolvedLaunch(
        algorithm=speculation_in_force(context),
        draft_tokens=drafts_in_force(context),
        draft_path=head_path(context),
        options=exported(context.resolution.after),
        changed=tuple(changes(context)),
    )


def _findings(context: LaunchContext) -> Iterator[LaunchFinding]:
    yield from stack_findings(context.command)
    yield from flag_findings(context.values, context.arguments)
    yield from start_findings(context)
    yield from triple_findings(context)
    yield from algorithm_findings(context)
    yield from model_findings(context)
    yield from honesty_findings(context)
    yield from variable_findings(context, "")
    yield from kernel_findings(context)
