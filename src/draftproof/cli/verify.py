"""`draftproof verify`: the chain of links, run side by side, judged in order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from draftproof import __version__
from draftproof.checkpoint.checkpoint import Checkpoint, open_checkpoint
from draftproof.checkpoint.paused_collection import paused_collection
from draftproof.cli.console import report_console, terminal_progress, write_text
from draftproof.cli.report_files import Renderer, check_writable, markdown, renderer_for, write_report
from draftproof.evidence import ChainReport, LinkReport
from draftproof.evidence.terminal import print_chain
from draftproof.links.config import check_config
from draftproof.links.progress import Progress
from draftproof.links.subject import subject_of
from draftproof.links.value_reading import FULL
from draftproof.links.weights import check_weights

LinkRunner = Callable[[Checkpoint, Progress], LinkReport]
"""Runs one link on an opened checkpoint, and says how far it is."""


def verify(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CKPT", help="A folder, organisation/name[@revision], or 'tiny'.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write the report as Markdown.")
    ] = None,
    report_file: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Also write the report; .json or .md by its name."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Read every value, not the head and a sample of the rest.")
    ] = False,
    run: Annotated[
        bool, typer.Option("--run", help="Also run it on draftproof's own engine: link 6 (function).")
    ] = False,
    draft_tokens: Annotated[
        int, typer.Option("--k", "--draft-tokens", help="With --run: most drafts per verify pass (K).")
    ] = 3,
) -> int:
    """Prove, link by link, that a checkpoint's MTP head is declared, whole and sane.

    Runs link 1 (config), link 2 (weights) and, with --run, link 6 (function). A repository on the hub is
    read by range requests: headers and a few kilobytes of values, less than 1 % of its bytes, unless
    --full is given.

    Exit codes: 0 proven, 1 disproved, 3 not enough evidence.
    """
    files: list[tuple[Path, Renderer]] = []
    if markdown_file is not None:
        files.append((markdown_file, markdown))
    if report_file is not None:
        files.append((report_file, renderer_for(report_file)))
    for path, _ in files:
        check_writable(path)
    runners = _runners(full)
    if run:
        runners = (*runners, _function_runner(draft_tokens))
    chain = _run(checkpoint, runners)
    # Before anything is printed: a failure to write is then the only JSON on stdout.
    for path, render in files:
        write_report(path, render(chain))
    if as_json:
        from draftproof.evidence.json_report import to_json

        write_text(to_json(chain))
    else:
        print_chain(report_console(), chain)
    return chain.exit_code


def _runners(full: bool) -> tuple[LinkRunner, ...]:
    """The links to run, in chain order. A further link is one more row."""
    reading = FULL if full else None
    return (
        lambda checkpoint, progress: check_config(checkpoint),
        lambda checkpoint, progress: check_weights(checkpoint, reading, progress),
    )


def _function_runner(draft_tokens: int) -> LinkRunner:
    # Imports torch, which takes seconds and which the base install does not have.
    from draftproof.cli.function_runner import engine_config, run_function

    engine_config(draft_tokens)  # a K that cannot be is a wrong command, not evidence
    return lambda checkpoint, progress: run_function(checkpoint, progress, draft_tokens)


def _side_by_side(
    checkpoint: Checkpoint, runners: tuple[LinkRunner, ...], progress: Progress
) -> list[LinkReport]:
    pool = ThreadPoolExecutor(max_workers=len(runners))
    running = [pool.submit(runner, checkpoint, progress) for runner in runners]
    try:
        return [future.result() for future in running]
    finally:
        # Not waited for: whoever interrupts a long reading does not wait for its end.
        pool.shutdown(wait=False, cancel_futures=True)


def _run(argument: str, runners: tuple[LinkRunner, ...]) -> ChainReport:
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    with paused_collection(), terminal_progress() as progress:
        checkpoint = open_checkpoint(
            argument, lambda done, total: progress.advance("reading headers", done, total)
        )
        reports = _side_by_side(checkpoint, runners, progress)
    return ChainReport(
        subject=subject_of(checkpoint),
        links=tuple(sorted(reports, key=lambda report: report.link.number)),
        version=__version__,
        started_at=started_at,
        arguments=("draftproof", *sys.argv[1:]),
    )
