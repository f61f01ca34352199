"""The chain on the terminal: calm, readable at 80 columns, and never by colour alone."""

from __future__ import annotations

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.item import EvidenceItem
from draftproof.evidence.terminal_parts import (
    QUIET,
    STYLES,
    hanging,
    heading,
    indented,
    line_character,
    pairs,
    places_text,
    print_command,
    print_note,
    section,
    symbol,
    verdict_text,
)
from draftproof.evidence.verdict import Verdict


def print_chain(console: Console, chain: ChainReport) -> None:
    """Prints the whole report."""
    console.print(heading("draftproof verify", chain.subject))
    for report in chain.links:
        console.print()
        print_link(console, report, chain.counts(report))
    console.print()
    print_closing(console, chain)


def print_link(console: Console, report: LinkReport, counts: bool) -> None:
    """Prints one link with its evidence.

    Args:
        console: where to.
        report: the link.
        counts: false after a broken link.
    """
    link = report.link
    title = Text.assemble(
        (f"{link.number} {link.value}", "bold"), "  ", verdict_text(console, report.verdict)
    )
    if not counts:
        title.append("  does not count: an earlier link is broken", style=QUIET)
    title.append(f"  {report.seconds:.2f} s", style=QUIET)
    console.print(section(console, title))
    for item in report.items:
        _print_item(console, item)


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


def _print_item(console: Console, item: EvidenceItem) -> None:
    proven = item.verdict is Verdict.PROVEN
    claim = Text.assemble((f"{symbol(console, item.verdict)} ", STYLES[item.verdict]), item.claim)
    if not proven:
        claim.append(f"  {item.verdict.word}", style=STYLES[item.verdict])
    console.print(hanging(claim, indent=2))
    if proven:
        console.print(indented(Text(item.observed, style=QUIET), 4))
    else:
        console.print(indented(_details(item), 4))
        print_command(console, item.command, 4)
    for note in item.notes:
        print_note(console, note, 4, item.command if proven else "")


def _details(item: EvidenceItem) -> Table:
    table = pairs()
    table.add_row("expected", Text(item.expected))
    table.add_row("observed", Text(item.observed))
    if item.reason:
        table.add_row("reason", Text(item.reason))
    if item.where:
        table.add_row("where", Text(places_text(item.where)))
    return table
