"""Makes a launch plan and judges it by the rules that judge a user's own command, for `plan` and `serve`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import perf_counter

from draftproof import __version__
from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.checkpoint.paused_collection import paused_collection
from draftproof.cli.console import terminal_progress
from draftproof.cli.stack_chain import (
    LinkJob,
    StackAudit,
    audit_of,
    backend_links,
    code_link,
    deployment_of,
    side_by_side,
)
from draftproof.cli.stack_options import DeploymentRequest
from draftproof.errors import UsageError
from draftproof.evidence import ChainReport
from draftproof.evidence.plan_report import PlanReport
from draftproof.links.config import check_config
from draftproof.links.launch import launch_report
from draftproof.links.subject import subject_of
from draftproof.links.weights import check_weights
from draftproof.stacks.find.find import StackFinder
from draftproof.stacks.request import StackRequest, parse_requests
from draftproof.stacks.stack import Stack


@dataclass(frozen=True)
class MadePlan:
    """A plan and the stack that it is for."""

    report: PlanReport
    stack: Stack


def one_stack(text: str | None, command: str) -> StackRequest:
    """The stack that a command works for.

    Raises:
        UsageError: none, several, or no such stack.
    """
    if text is None:
        raise UsageError(f"draftproof {command} needs --stack", "For example: --stack sglang.")
    requests = parse_requests(text)
    if len(requests) > 1:
        raise UsageError(
            f"draftproof {command} works for one stack, and --stack {text} names {len(requests)}",
            "Compare several with: draftproof verify",
        )
    return requests[0]


def make_plan(argument: str, wanted: StackRequest, request: DeploymentRequest) -> MadePlan:
    """Opens the checkpoint, finds the stack, and judges the command that the stack's rules propose.

    Raises:
        DraftproofError: the checkpoint or the stack cannot be read at all.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    with paused_collection(), terminal_progress() as progress:
        checkpoint = open_checkpoint(
            argument, lambda done, total: progress.advance("reading headers", done, total)
        )
        stack = StackFinder(progress=progress).find(wanted)
        situation = request.situation_of(checkpoint)
        audit: StackAudit = audit_of(stack, checkpoint, situation, None)
        start = perf_counter()
        launch = audit.launch()
        jobs: list[LinkJob] = [
            lambda: (check_config(checkpoint),),
            lambda: (check_weights(checkpoint, None, progress),),
            lambda: (code_link(audit, progress),),
            lambda: (launch_report(stack.tree.root, launch, start),),
            lambda: backend_links(audit, launch, progress),
        ]
        links = [report for reports in side_by_side(jobs) for report in reports]
    subject = replace(subject_of(checkpoint), deployment=deployment_of(stack, situation))
    chain = ChainReport(subject, tuple(links), __version__, started_at, ("draftproof", *sys.argv[1:]))
    return MadePlan(PlanReport(chain, launch.plan), stack)
