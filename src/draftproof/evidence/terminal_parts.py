"""Pieces that every terminal report is made of: headings, sections, notes, commands, verdicts."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from draftproof.evidence.chain import Subject
from draftproof.evidence.item import EvidenceTable, Location, Note, Severity
from draftproof.evidence.verdict import Verdict

QUIET = "dim"
STYLES = {Verdict.PROVEN: "green", Verdict.DISPROVED: "bold red", Verdict.UNKNOWN: "yellow"}

_SYMBOLS = {Verdict.PROVEN: "✓", Verdict.DISPROVED: "✗", Verdict.UNKNOWN: "?"}
_PLAIN_SYMBOLS = {Verdict.PROVEN: "+", Verdict.DISPROVED: "x", Verdict.UNKNOWN: "?"}
_WARNING_STYLE = "yellow"
_PLACES_SHOWN = 3
ROWS_SHOWN = 10
"""Of a table of figures in the short form of a report."""


def verdict_text(console: Console, verdict: Verdict) -> Text:
    """Symbol and word, in ASCII where the terminal's encoding asks for it."""
    return Text(f"{symbol(console, verdict)} {verdict.word}", style=STYLES[verdict])


def symbol(console: Console, verdict: Verdict) -> str:
    """One character; never the only sign of a verdict that matters."""
    return (_SYMBOLS if _speaks_unicode(console) else _PLAIN_SYMBOLS)[verdict]


def heading(command: str, subject: Subject) -> Text:
    """What was run on what; architecture, commit and place on a second line."""
    details = [subject.architecture, subject.revision[:12]]
    if subject.location != subject.name:
        details.append(subject.location)
    line = ", ".join(detail for detail in details if detail)
    text = Text.assemble((command, "bold"), "  ", subject.name)
    if line:
        text.append(f"\n{line}", style=QUIET)
    deployment = subject.deployment
    if deployment is not None and deployment.label:
        text.append(f"\n{deployment.label}", style="bold")
        text.append(f"  {deployment.origin}" if deployment.origin else "", style=QUIET)
    return text


def section(console: Console, title: Text) -> Rule:
    """A title with a line to the edge."""
    return Rule(title, align="left", style=QUIET, characters=line_character(console))


def line_character(console: Console) -> str:
    """What lines are drawn with."""
    return "─" if _speaks_unicode(console) else "-"


def print_note(console: Console, note: Note, indent: int, command: str = "") -> None:
    """A note, its places, and a command that shows it: its own, or the given one when it has no places."""
    warns = note.severity is Severity.WARN
    label = ("! WARN ", _WARNING_STYLE) if warns else ("i ", QUIET)
    console.print(hanging(Text.assemble(label, Text(note.text, style="" if warns else QUIET)), indent))
    if not warns:
        return
    if note.where:
        console.print(indented(Text(f"at {places_text(note.where)}", style=QUIET), indent + 2))
    print_command(console, note.command or ("" if note.where else command), indent + 2)


def print_command(console: Console, command: str, indent: int) -> None:
    """A command to copy into a shell: never broken into lines or boxed; nothing for an empty one."""
    if command:
        console.print(Text(f"{' ' * indent}see: {command}", style=QUIET), soft_wrap=True)


def print_table(console: Console, evidence: EvidenceTable, most: int) -> None:
    """The first rows of a table of figures, and how many more there are."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style=QUIET, title_style=QUIET)
    for number, name in enumerate(evidence.head):
        figures = all(not row[number] or row[number][0].isdigit() for row in evidence.rows)
        table.add_column(Text(name), justify="right" if figures else "left", overflow="fold")
    for row in evidence.rows[:most]:
        table.add_row(*map(Text, row))
    console.print(indented(Text(f"{evidence.title}:", style=QUIET), 4))
    console.print(indented(table, 6))
    rest = len(evidence.rows) - most
    if rest > 0:
        console.print(indented(Text(f"and {rest} more rows: --details", style=QUIET), 6))


def pairs() -> Table:
    """A table of labels and values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    return table


def hanging(text: Text, indent: int) -> Padding:
    """Text whose later lines stand under its second word."""
    table = Table.grid()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    head, _, _ = text.plain.partition(" ")
    table.add_row(text[: len(head) + 1], text[len(head) + 1 :])
    return indented(table, indent)


def indented(content: RenderableType, columns: int) -> Padding:
    """Moved to the right, without spaces up to the edge: they are in the way of whoever copies a line."""
    return Padding(content, (0, 0, 0, columns), expand=False)


def places_text(where: tuple[Location, ...]) -> str:
    """The first places and how many more there are."""
    shown = "; ".join(str(location) for location in where[:_PLACES_SHOWN])
    rest = len(where) - _PLACES_SHOWN
    return f"{shown}; and {rest} more" if rest > 0 else shown


def _speaks_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")
