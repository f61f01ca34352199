"""Golden tables: what each real version of a stack is found to do with each public release, for review.

One text file a version, tests/data/golden/STACK-VERSION.txt: for each link a table of releases by claims, and
below it the reason of every claim that is not proven, and every warning, with the releases that share it.
After a change that is meant to change them::

    python -m tests.stacks.golden                    all files
    python -m tests.stacks.golden sglang-0.5.23      one of them

and read the difference line by line: the file is the review.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from draftproof.evidence import LinkReport, Verdict
from draftproof.links.code import check_code
from draftproof.stacks.known import rules_for
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.stack import Stack
from tests.support.real_stacks import REAL_STACKS, real_stack
from tests.support.served_checkpoints import release_names, served_release

FOLDER = Path(__file__).parents[1] / "data" / "golden"
_LETTERS = {Verdict.PROVEN: "+", Verdict.DISPROVED: "NO", Verdict.UNKNOWN: "?"}
_LONGEST_REASON = 600


@dataclass(frozen=True)
class GoldenLink:
    """One link of the tables.

    Attributes:
        title: heading in the files.
        report: runs the link on a stack and a release; None where it does not apply.
    """

    title: str
    report: Callable[[Stack, ServedCheckpoint], LinkReport | None]


def code_report(stack: Stack, checkpoint: ServedCheckpoint) -> LinkReport:
    """Link 3, for the tensors that the release is known to have on disk."""
    return check_code(replace(checkpoint, from_files=True), stack, rules_for(stack.kind))


LINKS = (GoldenLink("code", code_report),)
"""The links that are tabled, in order; whoever builds a link adds it here."""


@dataclass(frozen=True)
class _Row:
    release: str
    report: LinkReport


def rendered(stack: Stack, links: Iterable[GoldenLink] = LINKS) -> str:
    """The golden file of one stack."""
    parts = [f"{stack.label}\n+ proven   NO disproved   ? unknown   - not claimed\n"]
    for link in links:
        rows = []
        for name in release_names():
            report = link.report(stack, served_release(name))
            if report is not None:
                rows.append(_Row(name, report))
        parts.append(_table(stack, link.title, rows))
    return "\n".join(parts)


def golden_file(name: str, version: str) -> Path:
    """Where the file of one version lies."""
    return FOLDER / f"{name}-{version}.txt"


def _table(stack: Stack, title: str, rows: Sequence[_Row]) -> str:
    checks = list(dict.fromkeys(item.check for row in rows for item in row.report.items))
    checks.sort(key=lambda check: check.startswith("defect-"))
    common = [check for check in checks if not check.startswith("defect-")]
    width = max(len(row.release) for row in rows)
    lines = [f"== {title} ==", ""]
    lines += [f"  {number}. {check}" for number, check in enumerate(common, 1)]
    header = "  ".join(f"{number:>2}" for number in range(1, len(common) + 1))
    lines += ["", f"{'':<{width}}  {header}  verdict"]
    for row in rows:
        verdicts = {item.check: _LETTERS[item.verdict] for item in row.report.items}
        cells = "  ".join(f"{verdicts.get(check, '-'):>2}" for check in common)
        lines.append(f"{row.release:<{width}}  {cells}  {row.report.verdict.word}")
    lines += ["", *_reasons(stack, checks, rows), *_warnings(stack, rows)]
    return "\n".join(lines) + "\n"


def _reasons(stack: Stack, checks: Sequence[str], rows: Sequence[_Row]) -> list[str]:
    shared: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        for item in row.report.items:
            if item.verdict is not Verdict.PROVEN:
                where = f" [{item.where[0]}]" if item.where else ""
                text = _clean(stack, (item.reason or item.observed) + where)
                shared.setdefault((item.check, item.verdict.word, text), []).append(row.release)
    lines = []
    for (check, word, text), releases in sorted(shared.items(), key=lambda pair: checks.index(pair[0][0])):
        lines += [f"{check} {word}: {', '.join(releases)}", f"    {text}"]
    return lines


def _warnings(stack: Stack, rows: Sequence[_Row]) -> list[str]:
    shared: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for item in row.report.items:
            for note in item.warnings:
                shared.setdefault((item.check, _clean(stack, note.text)), []).append(row.release)
    lines = []
    for (check, text), releases in shared.items():
        who = "every release" if len(releases) == len(rows) else ", ".join(releases)
        lines += [f"{check} warns: {who}", f"    {text}"]
    return lines


def _clean(stack: Stack, text: str) -> str:
    """One line, without the folder of this machine's cache."""
    text = re.sub(r"\s+", " ", text.replace(str(stack.tree.root), "ROOT"))
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."


def main(wanted: Sequence[str]) -> int:
    """Writes the files again."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, version in REAL_STACKS:
        if not wanted or f"{name}-{version}" in wanted:
            file = golden_file(name, version)
            file.write_text(rendered(real_stack(name, version)))
            sys.stdout.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
