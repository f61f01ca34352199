"""Reports written to files: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from draftproof.errors import UsageError
from draftproof.evidence import ChainReport, ComparisonReport

Report = ChainReport | ComparisonReport
"""One chain, or several side by side."""

Renderer = Callable[[Report], str]


def renderer_for(path: Path) -> Renderer:
    """The form that a file's name asks for.

    Raises:
        UsageError: the suffix names no form.
    """
    suffix = path.suffix.lower()
    renderer = _RENDERERS.get(suffix)
    if renderer is None:
        raise UsageError(f"{path}: no report has the suffix {suffix or '(none)'}", "Use .html, .json or .md.")
    return renderer


# Each form is imported when it is asked for: the command line has to start at once.


def json_text(report: Report) -> str:
    """The report as JSON."""
    if isinstance(report, ComparisonReport):
        from draftproof.evidence.comparison_json import comparison_to_json

        return comparison_to_json(report)
    from draftproof.evidence.json_report import to_json

    return to_json(report)


def markdown(report: Report) -> str:
    """The report as Markdown."""
    if isinstance(report, ComparisonReport):
        from draftproof.evidence.comparison_markdown import comparison_to_markdown

        return comparison_to_markdown(report)
    from draftproof.evidence.markdown import to_markdown

    return to_markdown(report)


def html(report: Report) -> str:
    """The report as one HTML file."""
    from draftproof.evidence.html import comparison_to_html, to_html

    return comparison_to_html(report) if isinstance(report, ComparisonReport) else to_html(report)


_RENDERERS: dict[str, Renderer] = {
    ".json": json_text,
    ".md": markdown,
    ".markdown": markdown,
    ".html": html,
    ".htm": html,
}


def check_writable(path: Path) -> None:
    """Says before any work, not after it, that a report cannot be written.

    Raises:
        UsageError: the folder is missing or not writable, or the path is a folder or a device.
    """
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"{path} is a folder", "Name a file for the report.")
    if path.exists() and not path.is_file():
        # The finished report is renamed to its place, and would take that of /dev/null.
        raise UsageError(f"{path} is no regular file", "Name a file for the report.")
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} for the report {path.name}", "Make it first.")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} is not writable", "Name another place for the report.")


def write_report(path: Path, text: str) -> None:
    """Writes beside the target and renames, so that a half-written report never stands under its name.

    Raises:
        UsageError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8", errors="backslashreplace")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}", "Name another place for the report."
        ) from error
