"""The chain on the terminal: calm, readable at 80 columns, and never by colour alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.item import EvidenceItem, Severity
from draftproof.evidence.terminal_parts import (
    QUIET,
    ROWS_SHOWN,
    STYLES,
    hanging,
    heading,
    indented,
    line_character,
    pairs,
    places_text,
    print_command,
    print_note,
    print_table,
    section,
    symbol,
    verdict_text,
)
from draftproof.evidence.verdict import Verdict


class Detail(Enum):
    """How much of the evidence is printed."""

    SHORT = "short"
    """A line for what is proven; everything about what decides; warnings, and tables of figures."""
    FULL = "full"
    """Every note, place and command."""


def print_chain(console: Console, chain: ChainReport, detail: Detail = Detail.SHORT) -> None:
    """Prints the whole report."""
    console.print(heading("draftproof verify", chain.subject))
    for report in chain.links:
        console.print()
        print_link(console, report, chain.counts(report), detail)
    console.print()
    print_closing(console, chain)
    if detail is Detail.SHORT:
        console.print(Text("Every note, place and command: --details, or --report FILE.html", style=QUIET))


def print_link(console: Console, report: LinkReport, counts: bool, detail: Detail = Detail.SHORT) -> None:
    """Prints one link with its evidence.

    Args:
        console: where to.
        report: the link.
        counts: false after a broken link.
        detail: how much of its evidence.
    """
    link = report.link
    title = Text.assemble(
        (f"{link.number} {link.value}", "bold"), "  ", verdict_text(console, report.verdict)
    )
    if not counts:
        title.append("  does not count: an earlier link is broken", style=QUIET)
    title.append(f"  {report.seconds:.2f} s", style=QUIET)
    console.print(section(console, title))
    if detail is Detail.FULL:
        for item in report.items:
            _print_whole(console, item)
        return
    for group in _alike(report.items):
        _print_short(console, group)


def print_closing(console: Console, chain: ChainReport) -> None:
    """Prints the verdict, and what the report does not prove."""
    console.print(Rule(style=QUIET, characters=line_character(console)))
    sentence = chain.summary[:1].upper() + chain.summary[1:]
    console.print(Text.assemble(verdict_text(console, chain.verdict), "  ", sentence))
    if chain.does_not_prove:
        console.print(Text("This report does not prove", style=QUIET))
    for clause in chain.does_not_prove:
        console.print(hanging(Text(f"- {clause}", style=QUIET), indent=2))
    if chain.not_run:
        names = ", ".join(f"{link.number} {link.value}" for link in chain.not_run)
        console.print(Text(f"Links not run: {names}", style=QUIET))


def _alike(items: tuple[EvidenceItem, ...]) -> Iterator[list[EvidenceItem]]:
    """Claims one by one; those that are open for one and the same reason together."""
    group: list[EvidenceItem] = []
    for item in items:
        if group and item.reason and item.reason == group[0].reason:
            group.append(item)
            continue
        if group:
            yield group
        group = [item]
    if group:
        yield group


def _print_short(console: Console, group: list[EvidenceItem]) -> None:
    item = group[0]
    if item.verdict is Verdict.PROVEN:
        _print_proven(console, item)
    else:
        for each in group:
            console.print(_claim(console, each))
        # Claims that are open for one reason expect different things; the reason says it all.
        shown = item if len(group) == 1 else replace(item, expected="")
        console.print(indented(_details(shown), 4))
        print_command(console, item.command, 4)
    for each in group:
        for note in each.notes:
            if note.severity is Severity.WARN:
                print_note(console, note, 4, item.command if item.verdict is Verdict.PROVEN else "")


def _print_proven(console: Console, item: EvidenceItem) -> None:
    """One line, cut at the edge; what has figures or a warning is shown whole."""
    claim = Text.assemble((f"{symbol(console, item.verdict)} ", STYLES[item.verdict]), item.claim)
    if item.tables or item.warnings:
        console.print(hanging(claim, indent=2))
        console.print(indented(Text(item.observed, style=QUIET), 4))
        for table in item.tables:
            print_table(console, table, ROWS_SHOWN)
        return
    claim.append(f"  {item.observed}", style=QUIET)
    claim.no_wrap = True
    claim.overflow = "ellipsis"
    console.print(indented(claim, 2))


def _print_whole(console: Console, item: EvidenceItem) -> None:
    proven = item.verdict is Verdict.PROVEN
    console.print(_claim(console, item))
    if proven:
        console.print(indented(Text(item.observed, style=QUIET), 4))
        console.print(indented(Text(f"expected: {item.expected}", style=QUIET), 4))
        if item.where:
            console.print(indented(Text(f"at {places_text(item.where)}", style=QUIET), 4))
    else:
        console.print(indented(_details(item), 4))
    print_command(console, item.command, 4)
    for table in item.tables:
        print_table(console, table, len(table.rows))
    for note in item.notes:
        print_note(console, note, 4, item.command if proven else "")


def _claim(console: Console, item: EvidenceItem) -> Padding:
    claim = Text.assemble((f"{symbol(console, item.verdict)} ", STYLES[item.verdict]), item.claim)
    if item.verdict is not Verdict.PROVEN:
        claim.append(f"  {item.verdict.word}", style=STYLES[item.verdict])
    return hanging(claim, indent=2)


def _details(item: EvidenceItem) -> Table:
    table = pairs()
    if item.expected:
        table.add_row("expected", Text(item.expected))
    if item.observed != item.reason:
        table.add_row("observed", Text(item.observed))
    if item.reason:
        table.add_row("reason", Text(item.reason))
    if item.where:
        table.add_row("where", Text(places_text(item.where)))
    return table
