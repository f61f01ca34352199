"""A report on the terminal: calm, readable at 80 columns, and never by colour alone."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.item import EvidenceItem, Location, Note
from draftproof.evidence.verdict import Verdict

_STYLES = {Verdict.PROVEN: "green", Verdict.DISPROVED: "bold red", Verdict.UNKNOWN: "yellow"}
_SYMBOLS = {Verdict.PROVEN: "✓", Verdict.DISPROVED: "✗", Verdict.UNKNOWN: "?"}
_PLAIN_SYMBOLS = {Verdict.PROVEN: "+", Verdict.DISPROVED: "x", Verdict.UNKNOWN: "?"}
_WARNING_STYLE = "yellow"
_QUIET = "dim"
_PLACES_SHOWN = 3


def print_chain(console: Console, chain: ChainReport) -> None:
    """Prints the whole report."""
    console.print(_heading(chain))
    for report in chain.links:
        console.print()
        _render_link(console, chain, report)
    console.print()
    console.print(_closing_rule(console))
    closing = Text.assemble(verdict_text(console, chain.verdict), "  ", _sentence(chain.summary))
    console.print(closing)
    _render_limits(console, chain)


def verdict_text(console: Console, verdict: Verdict) -> Text:
    """Symbol and word, in ASCII where the terminal's encoding asks for it."""
    return Text(f"{_symbol(console, verdict)} {verdict.word}", style=_STYLES[verdict])


def _heading(chain: ChainReport) -> Text:
    heading = Text.assemble(("draftproof verify", "bold"), "  ", chain.subject.name)
    details = [chain.subject.architecture, chain.subject.revision[:12]]
    if chain.subject.location != chain.subject.name:
        details.append(chain.subject.location)
    line = ", ".join(detail for detail in details if detail)
    if line:
        heading.append(f"\n{line}", style=_QUIET)
    return heading


def _render_link(console: Console, chain: ChainReport, report: LinkReport) -> None:
    link = report.link
    title = Text.assemble(
        (f"{link.number} {link.value}", "bold"), "  ", verdict_text(console, report.verdict)
    )
    if not chain.counts(report):
        title.append("  does not count: an earlier link is broken", style=_QUIET)
    title.append(f"  {report.seconds:.2f} s", style=_QUIET)
    console.print(Rule(title, align="left", style=_QUIET, characters=_line(console)))
    for item in report.items:
        _render_item(console, item)


def _render_item(console: Console, item: EvidenceItem) -> None:
    claim = Text.assemble((f"{_symbol(console, item.verdict)} ", _STYLES[item.verdict]), item.claim)
    if item.verdict is not Verdict.PROVEN:
        claim.append(f"  {item.verdict.word}", style=_STYLES[item.verdict])
    console.print(_hanging(claim, indent=2))
    if item.verdict is Verdict.PROVEN:
        console.print(_indented(Text(item.observed, style=_QUIET), 4))
    else:
        console.print(_indented(_details(item), 4))
        _render_command(console, item.command, 4)
    for note in item.notes:
        _render_note(console, note, item)


def _details(item: EvidenceItem) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style=_QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("expected", Text(item.expected))
    table.add_row("observed", Text(item.observed))
    if item.reason:
        table.add_row("reason", Text(item.reason))
    if item.where:
        table.add_row("where", Text(_places(item.where)))
    return table


def _render_note(console: Console, note: Note, item: EvidenceItem) -> None:
    warns = note.severity.value == "warn"
    label = ("! WARN ", _WARNING_STYLE) if warns else ("i ", _QUIET)
    text = Text.assemble(label, Text(note.text, style="" if warns else _QUIET))
    console.print(_hanging(text, indent=4))
    if warns and note.where:
        console.print(_indented(Text(f"at {_places(note.where)}", style=_QUIET), 6))
    if warns and (note.command or item.verdict is Verdict.PROVEN):
        _render_command(console, note.command or item.command, 6)


def _render_command(console: Console, command: str, indent: int) -> None:
    # A command is copied into a shell: it is never broken into lines or boxed.
    if command:
        console.print(Text(f"{' ' * indent}see: {command}", style=_QUIET), soft_wrap=True)


def _render_limits(console: Console, chain: ChainReport) -> None:
    if chain.does_not_prove:
        console.print(Text("This report does not prove", style=_QUIET))
    for clause in chain.does_not_prove:
        console.print(_hanging(Text(f"- {clause}", style=_QUIET), indent=2))
    if chain.not_run:
        names = ", ".join(f"{link.number} {link.value}" for link in chain.not_run)
        console.print(Text(f"Links not run: {names}", style=_QUIET))


def _hanging(text: Text, indent: int) -> Padding:
    """Text whose later lines stand under its first word."""
    table = Table.grid()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    head, _, _ = text.plain.partition(" ")
    table.add_row(text[: len(head) + 1], text[len(head) + 1 :])
    return _indented(table, indent)


def _indented(content: RenderableType, columns: int) -> Padding:
    # Not expanded: no spaces up to the edge, which would be in the way of whoever copies a line.
    return Padding(content, (0, 0, 0, columns), expand=False)


def _places(where: tuple[Location, ...]) -> str:
    shown = "; ".join(str(location) for location in where[:_PLACES_SHOWN])
    rest = len(where) - _PLACES_SHOWN
    return f"{shown}; and {rest} more" if rest > 0 else shown


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _symbol(console: Console, verdict: Verdict) -> str:
    return (_SYMBOLS if _speaks_unicode(console) else _PLAIN_SYMBOLS)[verdict]


def _closing_rule(console: Console) -> Rule:
    return Rule(style=_QUIET, characters=_line(console))


def _line(console: Console) -> str:
    return "─" if _speaks_unicode(console) else "-"


def _speaks_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")
