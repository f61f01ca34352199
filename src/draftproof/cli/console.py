"""Where output goes: reports to stdout, errors and progress to stderr, and nothing breaks in ``| head``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from draftproof.evidence.printable import printable


class ReportConsole(Console):
    """A console on stdout that goes quiet when its reader goes away; the exit code stays the verdict's."""

    def on_broken_pipe(self) -> None:
        """Called by rich when the pipe is closed."""
        self.quiet = True
        silence_standard_output()


def report_console() -> Console:
    """The console that reports are printed on. Colour and width follow the terminal and ``NO_COLOR``."""
    return ReportConsole(highlight=False, emoji=False, markup=False)


def write_text(text: str) -> None:
    """Writes to stdout as it is; a reader that went away, or that never was, is no error."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence_standard_output()


def write_error(kind: str, message: str, remedy: str, exit_code: int, as_json: bool) -> int:
    """Prints one line on stderr, and the same as a JSON object on stdout when the caller reads JSON.

    Returns:
        `exit_code`.
    """
    ended = message if message.endswith((".", "?", "!")) else f"{message}."
    line = printable(f"{ended} {remedy}" if remedy else message)
    print(f"error: {line}", file=sys.stderr)  # noqa: T201 - the one line
    if as_json:
        report = {
            "kind": "error",
            "schema_version": "1.1",
            "error": kind,
            "message": message,
            "remedy": remedy or None,
            "exit_code": exit_code,
        }
        write_text(
            json.dumps({key: value for key, value in report.items() if value is not None}, indent=2) + "\n"
        )
    return exit_code


def silence_standard_output() -> None:
    """Points stdout at nothing, so that neither later writes nor the flush at exit complain."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class TerminalProgress:
    """Shows how far a long step is; see `draftproof.links.progress.Progress`."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def advance(self, step: str, done: int, total: int) -> None:
        """`done` of `total` parts of a step are finished."""
        if step not in self._tasks:
            self._tasks[step] = self._bars.add_task(step, total=total)
        self._bars.update(self._tasks[step], completed=done, total=total)


@contextmanager
def terminal_progress() -> Iterator[TerminalProgress]:
    """Progress on stderr that vanishes when the work is done; nothing at all when stderr is no terminal."""
    console = Console(stderr=True)
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bars:
        yield TerminalProgress(bars)
