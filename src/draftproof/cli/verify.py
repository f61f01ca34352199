"""`draftproof verify`: the chain of links, run side by side, judged in order."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from draftproof import __version__
from draftproof.checkpoint.checkpoint import Checkpoint, open_checkpoint
from draftproof.checkpoint.paused_collection import paused_collection
from draftproof.cli.checkpoint_argument import CheckpointArgument
from draftproof.cli.console import report_console, terminal_progress, write_text
from draftproof.cli.report_files import (
    Renderer,
    Report,
    check_writable,
    json_text,
    markdown,
    renderer_for,
    write_report,
)
from draftproof.cli.stack_chain import LinkJob, audit_of, deployment_of, side_by_side, stack_jobs
from draftproof.cli.stack_options import (
    AcceptLengthOption,
    ArgumentsOption,
    BandwidthOption,
    CacheTypeOption,
    CapabilityOption,
    ConcurrencyOption,
    ContextOption,
    DeploymentRequest,
    DraftTokensOption,
    GpuOption,
    Load,
    MeasuredOption,
    MemoryOption,
    StackOption,
    TensorParallelOption,
    deployment_request,
)
from draftproof.evidence import ChainReport, ComparisonReport, LinkReport
from draftproof.evidence.comparison_terminal import print_comparison
from draftproof.evidence.terminal import Detail, print_chain
from draftproof.hardware.gpu_choice import GpuOptions
from draftproof.links.backend import check_backend
from draftproof.links.config import check_config
from draftproof.links.progress import Progress
from draftproof.links.subject import subject_of
from draftproof.links.value_reading import FULL
from draftproof.links.weights import check_weights
from draftproof.stacks.find.find import StackFinder
from draftproof.stacks.situation import CacheType
from draftproof.stacks.stack import Stack


def verify(
    checkpoint: CheckpointArgument,
    stack: StackOption = None,
    arguments: ArgumentsOption = None,
    gpu: GpuOption = None,
    tensor_parallel: TensorParallelOption = None,
    capability: CapabilityOption = None,
    memory: MemoryOption = None,
    bandwidth: BandwidthOption = None,
    draft_tokens: DraftTokensOption = 3,
    context: ContextOption = None,
    concurrency: ConcurrencyOption = 1,
    cache_type: CacheTypeOption = CacheType.AUTO,
    accept_length: AcceptLengthOption = None,
    measured: MeasuredOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write the report as Markdown.")
    ] = None,
    report_file: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Also write the report; .html, .json or .md by its name."
        ),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Print every note, place and command, not the short form.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Read every value, not the head and a sample of the rest.")
    ] = False,
    run: Annotated[
        bool, typer.Option("--run", help="Also run it on draftproof's own engine: link 6 (function).")
    ] = False,
) -> int:
    """Prove, link by link, that a checkpoint's MTP head is there, and that a serving stack will use it.

    Runs links 1 (config) and 2 (weights); with --stack, links 3 (code) and 4 (launch) of that stack, whose
    source is read and never imported; with --gpu, link 5 (backend); with --run, link 6 (function). A link
    that nobody asked for is not run, and the report says so. Several stacks give one table.

    A repository on the hub is read by range requests: headers and a few kilobytes of values, less than 1 %
    of its bytes, unless --full is given.

    Exit codes: 0 proven (of several stacks: in every one), 1 disproved (in any), 3 not enough evidence.
    """
    files = _files(markdown_file, report_file)
    request = deployment_request(
        stack,
        arguments,
        GpuOptions(gpu, capability, memory, bandwidth),
        tensor_parallel,
        Load(draft_tokens, context, concurrency, cache_type, accept_length, measured),
    )
    report = run_chain(checkpoint, ChainRequest(request, full, run))
    # Before anything is printed: a failure to write is then the only JSON on stdout.
    for path, render in files:
        write_report(path, render(report))
    if as_json:
        write_text(json_text(report))
    elif isinstance(report, ComparisonReport):
        print_comparison(report_console(), report)
    else:
        print_chain(report_console(), report, Detail.FULL if details else Detail.SHORT)
    return report.exit_code


@dataclass(frozen=True)
class ChainRequest:
    """Which links are to run.

    Attributes:
        deployment: stacks for links 3 and 4, a GPU for link 5.
        full: link 2 reads every value.
        run: link 6 runs on our own engine.
    """

    deployment: DeploymentRequest
    full: bool
    run: bool


def run_chain(argument: str, request: ChainRequest) -> Report:
    """Opens the checkpoint, finds the stacks, and runs every link that was asked for.

    Raises:
        DraftproofError: the checkpoint or a stack cannot be read at all.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    with paused_collection(), terminal_progress() as progress:
        checkpoint = open_checkpoint(
            argument, lambda done, total: progress.advance("reading headers", done, total)
        )
        finder = StackFinder(progress=progress)
        stacks: list[Stack | None] = [finder.find(wanted) for wanted in request.deployment.stacks] or [None]
        shared = _checkpoint_jobs(checkpoint, request, progress)
        own = [_stack_jobs(checkpoint, stack, request.deployment, progress) for stack in stacks]
        found = iter(side_by_side([*shared, *(job for jobs in own for job in jobs)]))
        common = [next(found) for _ in shared]
        by_stack = [[*common, *(next(found) for _ in jobs)] for jobs in own]
    chains = tuple(
        ChainReport(
            subject=replace(
                subject_of(checkpoint), deployment=deployment_of(stack, request.deployment.situation)
            ),
            links=_in_order(links),
            version=__version__,
            started_at=started_at,
            arguments=("draftproof", *sys.argv[1:]),
        )
        for stack, links in zip(stacks, by_stack, strict=True)
    )
    return chains[0] if len(chains) == 1 else ComparisonReport(chains)


def _files(markdown_file: Path | None, report_file: Path | None) -> list[tuple[Path, Renderer]]:
    files: list[tuple[Path, Renderer]] = []
    if markdown_file is not None:
        files.append((markdown_file, markdown))
    if report_file is not None:
        files.append((report_file, renderer_for(report_file)))
    for path, _ in files:
        check_writable(path)
    return files


def _checkpoint_jobs(checkpoint: Checkpoint, request: ChainRequest, progress: Progress) -> list[LinkJob]:
    """Links that are the same whatever serves the checkpoint. A further one is one more row."""
    reading = FULL if request.full else None
    jobs: list[LinkJob] = [
        lambda: (check_config(checkpoint),),
        lambda: (check_weights(checkpoint, reading, progress),),
    ]
    if request.run:
        jobs.append(_function_job(checkpoint, request.deployment.situation.draft_tokens, progress))
    return jobs


def _stack_jobs(
    checkpoint: Checkpoint, stack: Stack | None, request: DeploymentRequest, progress: Progress
) -> tuple[LinkJob, ...]:
    """Links 3 to 5 in one stack; with a GPU and no stack, link 5 says what holds in any."""
    situation = request.situation_of(checkpoint)
    if stack is not None:
        audit = audit_of(stack, checkpoint, situation, request.command)
        return stack_jobs(audit, progress)
    if situation.gpu is None:
        return ()
    return (lambda: (check_backend(checkpoint, situation, None, progress),),)


def _function_job(checkpoint: Checkpoint, draft_tokens: int, progress: Progress) -> LinkJob:
    # Imports torch, which takes seconds and which the base install does not have.
    from draftproof.cli.function_runner import engine_config, run_function

    engine_config(draft_tokens)  # a K that cannot be is a wrong command, not evidence
    return lambda: (run_function(checkpoint, progress, draft_tokens),)


def _in_order(links: list[tuple[LinkReport, ...]]) -> tuple[LinkReport, ...]:
    return tuple(sorted((one for several in links for one in several), key=lambda one: one.link.number))
