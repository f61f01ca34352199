"""A proposed command on the terminal: to paste, then why, then what it needs and what it will reach."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from draftproof.evidence.plan_report import PlanReport, flag_words
from draftproof.evidence.printable import printable
from draftproof.evidence.terminal_parts import (
    QUIET,
    ROWS_SHOWN,
    STYLES,
    hanging,
    heading,
    indented,
    line_character,
    print_note,
    print_table,
    section,
    symbol,
    verdict_text,
)
from draftproof.evidence.verdict import Verdict
from draftproof.stacks.launch_facts import Requirement
from draftproof.stacks.place import Place

_PREDICTIONS = ("weights-fit", "sequences-fit", "roofline", "measured-speed")
"""Claims of link 5 that say what the deployment will reach."""


def print_plan(console: Console, report: PlanReport) -> None:
    """Prints the whole answer."""
    console.print(heading("draftproof plan", report.chain.subject))
    console.print()
    print_shell_command(console, report)
    _print_reasons(console, report)
    _print_requirements(console, report.plan.requirements)
    _print_prediction(console, report)
    print_plan_verdict(console, report)


def print_shell_command(console: Console, report: PlanReport) -> None:
    """The command, one option a line, never broken or boxed: it is there to be pasted."""
    for line in report.lines:
        console.print(Text(printable(line), style="bold"), soft_wrap=True)


def print_plan_verdict(console: Console, report: PlanReport) -> None:
    """Every link in a line, then the verdict of the command."""
    console.print()
    console.print(section(console, Text("does it hold?", style="bold")))
    table = Table.grid(padding=(0, 2))
    for link in report.chain.links:
        counts = report.chain.counts(link)
        verdict = verdict_text(console, link.verdict) if counts else Text("does not count", style=QUIET)
        sentence = link.link.definition.holds_when if link.verdict is Verdict.PROVEN else link.summary
        table.add_row(Text(f"{link.link.number} {link.link.value}"), verdict, Text(sentence, style=QUIET))
    console.print(indented(table, 2))
    console.print()
    console.print(Rule(style=QUIET, characters=line_character(console)))
    sentence = report.chain.summary[:1].upper() + report.chain.summary[1:]
    console.print(Text.assemble(verdict_text(console, report.verdict), "  ", sentence))
    console.print(
        Text("The evidence: draftproof verify, with the same options, and --report FILE.html", style=QUIET)
    )


def _print_reasons(console: Console, report: PlanReport) -> None:
    console.print()
    console.print(section(console, Text("why", style="bold")))
    for variable in report.plan.environment:
        _print_reason(console, f"{variable.name}={variable.value}", variable.reason, variable.places)
    for flag in report.plan.flags:
        _print_reason(console, " ".join(flag_words(flag)), flag.reason, flag.places)


def _print_reason(console: Console, words: str, reason: str, places: Iterable[Place]) -> None:
    console.print(Text(f"  {printable(words)}", style="bold"), soft_wrap=True)
    where = ", ".join(str(place) for place in list(places)[:2])
    text = Text(printable(reason))
    if where:
        text.append(f"  {where}", style=QUIET)
    console.print(indented(text, 4))


def _print_requirements(console: Console, needs: tuple[Requirement, ...]) -> None:
    if not needs:
        return
    console.print()
    console.print(section(console, Text("must be installed", style="bold")))
    for need in needs:
        verdict = _PRESENCE[need.present]
        words = {True: "installed", False: "missing", None: "not looked at"}[need.present]
        name = f"{need.name} {need.version}".strip()
        text = Text.assemble((f"{symbol(console, verdict)} ", STYLES[verdict]), printable(name), f", {words}")
        text.append(f": {printable(need.reason)}", style=QUIET)
        console.print(hanging(text, indent=2))
        if need.present is not True and need.command:
            console.print(Text(f"    {printable(need.command)}"), soft_wrap=True)


def _print_prediction(console: Console, report: PlanReport) -> None:
    link = report.prediction
    items = [item for item in link.items if item.check in _PREDICTIONS] if link else []
    if not items:
        return
    console.print()
    console.print(section(console, Text("what it will reach", style="bold")))
    for item in items:
        mark = (f"{symbol(console, item.verdict)} ", STYLES[item.verdict])
        console.print(hanging(Text.assemble(mark, item.claim), indent=2))
        console.print(indented(Text(item.reason or item.observed), 4))
        for table in item.tables:
            print_table(console, table, ROWS_SHOWN)
        for note in item.notes:
            print_note(console, note, 4)


_PRESENCE = {True: Verdict.PROVEN, False: Verdict.DISPROVED, None: Verdict.UNKNOWN}
