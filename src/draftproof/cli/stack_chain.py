"""Links 3 to 5 of one stack, as jobs that run beside the others."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.location import HubLocation
from draftproof.errors import DraftproofError
from draftproof.evidence import Deployment, EvidenceItem, Link, LinkReport, Verdict
from draftproof.links.backend import check_backend
from draftproof.links.backend_subject import StackKernels
from draftproof.links.code import check_code
from draftproof.links.launch import JudgedLaunch, judged_launch, launch_report
from draftproof.links.progress import Progress
from draftproof.links.served import served_checkpoint
from draftproof.stacks.command.command import Command, GivenFlag
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
    """A stack with its rules; a command of bare options is taken for one of this stack and checkpoint."""
    name = _name_in(stack, checkpoint)
    own = None if command is None else _completed(command, stack.kind, name)
    served = replace(served_checkpoint(checkpoint), name=name)
    return StackAudit(stack, rules_for(stack.kind), served, situation, own)


def _completed(command: Command, kind: StackKind, name: str) -> Command:
    """Bare options are about the checkpoint that was named beside them; whole commands name their own."""
    if command.stack is not None:
        return command
    whole = options_only(command, kind)
    if kind is StackKind.SGLANG and not whole.named("--model-path", "--model"):
        return replace(whole, flags=(GivenFlag("--model-path", (name,), 0), *whole.flags))
    names_it = whole.positionals or whole.named("--model", "--model-path")
    if kind in (StackKind.VLLM, StackKind.NATIVE) and not names_it:
        return replace(whole, positionals=(name,))
    return whole


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
        return (code_link(audit, progress),)

    def launch_and_backend() -> tuple[LinkReport, ...]:
        start = perf_counter()
        step = f"launch of {audit.stack.label}"
        progress.advance(step, 0, 1)
        try:
            launch = audit.launch()
        except DraftproofError:
            raise
        except Exception as error:  # noqa: BLE001 - see `_not_carried_out`
            return (_not_carried_out(Link.LAUNCH, error, start), *backend_links(audit, None, progress))
        finally:
            progress.advance(step, 1, 1)
        report = launch_report(audit.stack.tree.root, launch, start)
        return (report, *backend_links(audit, launch, progress))

    return code, launch_and_backend


def code_link(audit: StackAudit, progress: Progress) -> LinkReport:
    """Link 3."""
    start = perf_counter()
    try:
        return check_code(audit.checkpoint, audit.stack, audit.rules, audit.situation, progress)
    except DraftproofError:
        raise
    except Exception as error:  # noqa: BLE001 - see `_not_carried_out`
        return _not_carried_out(Link.CODE, error, start)


def backend_links(
    audit: StackAudit, launch: JudgedLaunch | None, progress: Progress
) -> tuple[LinkReport, ...]:
    """Link 5 of a judged command, when a GPU is known; of none when there is no judgement to rest on."""
    if audit.situation.gpu is None:
        return ()
    if launch is None:
        return (check_backend(audit.checkpoint, audit.situation, None, progress),)
    start = perf_counter()
    try:
        facts = audit.rules.backends(audit.stack, audit.checkpoint, audit.situation, launch.judgement)
        kernels = StackKernels(audit.stack, facts, launch.judgement.resolved)
        return (check_backend(audit.checkpoint, audit.situation, kernels, progress),)
    except DraftproofError:
        raise
    except Exception as error:  # noqa: BLE001 - see `_not_carried_out`
        return (_not_carried_out(Link.BACKEND, error, start),)


def _not_carried_out(link: Link, error: Exception, start: float) -> LinkReport:
    """A link whose rules failed on a source that nobody has seen: open, and the other links stand.

    This is the boundary between rules and foreign sources. It is a defect of draftproof, and is called one.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "draftproof" in frame.filename]
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    reason = (
        f"draftproof's rules failed on this source{place}: {type(error).__name__}: {error}. "
        "This is a defect in draftproof; please report it"
    )
    item = EvidenceItem(
        check="rules-carried-out",
        claim="The rules of this link can be carried out on this source.",
        verdict=Verdict.UNKNOWN,
        expected="an answer to every question",
        observed="none",
        reason=reason,
    )
    return LinkReport(link, (item,), perf_counter() - start)


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
