"""Links 3 to 5 of one stack, as jobs that run beside the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.location import HubLocation
from draftproof.evidence import Deployment, LinkReport
from draftproof.links.backend import check_backend
from draftproof.links.backend_subject import StackKernels
from draftproof.links.code import check_code
from draftproof.links.launch import JudgedLaunch, judged_launch, launch_report
from draftproof.links.progress import Progress
from draftproof.links.served import served_checkpoint
from draftproof.stacks.command.command import Command
from draftproof.stacks.command.parse import options_only
from draftproof.stacks.known import rules_for
from draftproof.stacks.rules import StackRules
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack, StackKind

LinkJob = Callable[[], tuple[LinkReport, ...]]
"""Runs links that depend on each other, one after another."""


@dataclass(frozen=True)
class StackAudit:
    """One stack to look at.

    Attributes:
        stack: what was found.
        rules: that stack's.
        checkpoint: as the stack gets to see it.
        situation: GPUs and load.
        command: the user's; None for the proposed one.
    """

    stack: Stack
    rules: StackRules
    checkpoint: ServedCheckpoint
    situation: Situation
    command: Command | None

    def launch(self) -> JudgedLaunch:
        """The command, judged."""
        return judged_launch(self.stack, self.rules, self.checkpoint, self.situation, self.command)


def audit_of(
    stack: Stack, checkpoint: Checkpoint, situation: Situation, command: Command | None
) -> StackAudit:
    """A stack with its rules; a command of bare options is taken for one of this stack."""
    own = None if command is None else options_only(command, stack.kind)
    served = replace(served_checkpoint(checkpoint), name=_name_in(stack, checkpoint))
    return StackAudit(stack, rules_for(stack.kind), served, situation, own)


def _name_in(stack: Stack, checkpoint: Checkpoint) -> str:
    """What the stack calls the checkpoint: only draftproof knows `tiny`, and a revision is an option."""
    location = checkpoint.location
    if stack.kind is StackKind.NATIVE:
        return location.argument
    if isinstance(location, HubLocation):
        return location.repository
    return str(location.folder) if location.embedded else location.argument


def stack_jobs(audit: StackAudit, progress: Progress) -> tuple[LinkJob, ...]:
    """Link 3; and links 4 and 5, of which the second needs what the first found.

    Link 5 runs when a GPU is known.
    """

    def code() -> tuple[LinkReport, ...]:
        return (check_code(audit.checkpoint, audit.stack, audit.rules, audit.situation, progress),)

    def launch_and_backend() -> tuple[LinkReport, ...]:
        start = perf_counter()
        step = f"launch of {audit.stack.label}"
        progress.advance(step, 0, 1)
        launch = audit.launch()
        progress.advance(step, 1, 1)
        return launch_links(audit, launch, progress, start)

    return code, launch_and_backend


def launch_links(
    audit: StackAudit, launch: JudgedLaunch, progress: Progress, start: float
) -> tuple[LinkReport, ...]:
    """Link 4 of a command that was judged since `start`, and link 5 when a GPU is known."""
    report = launch_report(audit.stack.tree.root, launch, start)
    if audit.situation.gpu is None:
        return (report,)
    facts = audit.rules.backends(audit.stack, audit.checkpoint, audit.situation, launch.judgement)
    kernels = StackKernels(audit.stack, facts, launch.judgement.resolved)
    return report, check_backend(audit.checkpoint, audit.situation, kernels, progress)


def deployment_of(stack: Stack | None, situation: Situation) -> Deployment | None:
    """What a report says about stack and GPUs; None when neither was named."""
    if stack is None and situation.gpu is None:
        return None
    return Deployment(
        stack=stack.kind.title if stack else "",
        version=stack.version if stack else "",
        origin=stack.origin if stack else "",
        gpu=situation.gpu.title if situation.gpu else "",
        tensor_parallel=situation.tensor_parallel,
    )


def side_by_side(jobs: Sequence[LinkJob]) -> list[tuple[LinkReport, ...]]:
    """Runs all jobs; the first error ends the wait."""
    pool = ThreadPoolExecutor(max_workers=max(len(jobs), 1))
    running = [pool.submit(job) for job in jobs]
    try:
        return [future.result() for future in running]
    finally:
        # Not waited for: whoever interrupts a long reading does not wait for its end.
        pool.shutdown(wait=False, cancel_futures=True)
