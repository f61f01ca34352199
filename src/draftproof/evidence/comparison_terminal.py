"""Several chains side by side on the terminal: the links, then the claims that differ, then why."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from draftproof.evidence.comparison import Agreement, Cell, ComparisonReport, ComparisonRow
from draftproof.evidence.quantities import count_text, shortened
from draftproof.evidence.terminal_parts import (
    QUIET,
    hanging,
    heading,
    line_character,
    section,
    verdict_text,
)

_REASON_LENGTH = 90


def print_comparison(console: Console, report: ComparisonReport) -> None:
    """Prints the whole report; the chains themselves are in the HTML and JSON forms."""
    subject = report.chains[0].subject
    console.print(heading("draftproof verify", replace(subject, deployment=None)))
    gpus = subject.deployment.gpu_label if subject.deployment else ""
    stacks = f"in {count_text(len(report.chains), 'stack')}" + (f", on {gpus}" if gpus else "")
    console.print(Text(stacks, style="bold"))
    console.print()
    console.print(_links_table(console, report))
    rows = report.claim_rows
    different = [row for row in rows if row.agreement is Agreement.DIFFERENT]
    failing = [row for row in rows if row.agreement is Agreement.SAME and not row.holds_everywhere]
    for title, found in (
        ("What differs", different),
        ("What fails or is open wherever it is asked", failing),
    ):
        if found:
            console.print()
            console.print(section(console, Text(title, style="bold")))
            console.print(_claims_table(console, report, found))
    holding = len(rows) - len(different) - len(failing)
    if holding:
        console.print()
        text = f"{count_text(holding, 'claim')} more: proven in every stack that makes them"
        console.print(Text(text, style=QUIET))
    console.print()
    _closing(console, report)


def _links_table(console: Console, report: ComparisonReport) -> Table:
    table = _empty_table(report)
    for row in report.link_rows:
        cells = (_cell(console, cell, 0) if cell else Text("not run", style=QUIET) for cell in row.cells)
        table.add_row(Text(f"{row.link.number} {row.link.value}"), *cells)
    return table


def _claims_table(console: Console, report: ComparisonReport, rows: list[ComparisonRow]) -> Table:
    """Wraps inside its columns, with an empty line between rows."""
    table = _empty_table(report)
    table.expand = True
    table.padding = (0, 2, 1, 0)
    for column in table.columns:
        column.ratio = 1
    for row in rows:
        name = Text(f"{row.link.number} {row.link.value}", style=QUIET).append(
            f"  {row.title}", style="default"
        )
        table.add_row(name, *(_cell(console, cell, _REASON_LENGTH) for cell in row.cells))
    return table


def _empty_table(report: ComparisonReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", overflow="fold")
    for label in report.labels:
        table.add_column(Text(label), overflow="fold")
    return table


def _closing(console: Console, report: ComparisonReport) -> None:
    console.print(Rule(style=QUIET, characters=line_character(console)))
    sentence = report.summary[:1].upper() + report.summary[1:]
    console.print(Text.assemble(verdict_text(console, report.verdict), "  ", sentence))
    for label, chain in zip(report.labels, report.chains, strict=True):
        console.print(hanging(Text(f"- {label}: {chain.summary}"), indent=2))
    clauses = dict.fromkeys(clause for chain in report.chains for clause in chain.does_not_prove)
    if clauses:
        console.print(Text("This report does not prove", style=QUIET))
    for clause in clauses:
        console.print(hanging(Text(f"- {clause}", style=QUIET), indent=2))
    console.print(Text("Every chain whole: --report FILE.html, or --json", style=QUIET))


def _cell(console: Console, cell: Cell | None, reason_length: int) -> Text:
    if cell is None:
        return Text("not asked", style=QUIET)
    if not cell.counts:
        return Text(f"{cell.verdict.word.lower()}, does not count", style=QUIET)
    text = verdict_text(console, cell.verdict)
    if cell.reason and reason_length:
        text.append(f"\n{shortened(cell.reason, reason_length)}", style=QUIET)
    return text
