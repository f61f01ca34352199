"""Links and their claims: one line each, with the evidence folded below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.chain_links import Link
from draftproof.evidence.html.markup import Markup, joined, tag
from draftproof.evidence.html.picture import RingState, badge, state_of, symbol
from draftproof.evidence.item import EvidenceItem, EvidenceTable, Location, Note, Severity
from draftproof.evidence.quantities import count_text
from draftproof.evidence.verdict import Verdict


def link_sections(chain: ChainReport, links: Iterable[LinkReport], anchor: Callable[[Link], str]) -> Markup:
    """Links with their claims, in order.

    Args:
        chain: that they belong to; says whether they count.
        links: those of its links that are shown here.
        anchor: of a link's evidence on the page.
    """
    return joined(_section(report, chain.counts(report), anchor(report.link)) for report in links)


def _section(report: LinkReport, counts: bool, name: str) -> Markup:
    state = state_of(report.verdict) if counts else RingState.VOID
    title = tag(
        "h2",
        tag("span", str(report.link.number), class_="number"),
        f" {report.link.value} ",
        badge(state, report.verdict.word),
        id=f"{name}-title",
    )
    held = sum(item.verdict is Verdict.PROVEN for item in report.items)
    figures = [f"{held} of {count_text(len(report.items), 'claim')} proven"]
    if report.warnings:
        figures.append(count_text(len(report.warnings), "warning"))
    figures.append(f"{report.seconds:.2f} s")
    broken = tag("p", "Does not count: an earlier link is broken.", class_="aside")
    return tag(
        "section",
        tag("div", title, tag("p", " · ".join(figures), class_="figures"), class_="linkhead"),
        tag("p", report.link.definition.holds_when, class_="holds"),
        *(() if counts else (broken,)),
        *(_claim(item, counts) for item in report.items),
        id=name,
        aria_labelledby=f"{name}-title",
        class_="card link" if counts else "card link void",
    )


def _claim(item: EvidenceItem, counts: bool) -> Markup:
    """Folded when it is proven, unfolded when it decides something."""
    proven = item.verdict is Verdict.PROVEN
    state = state_of(item.verdict)
    seen = (tag("span", item.observed, class_="seen"),) if proven else ()
    heading = [symbol(state), tag("span", item.claim, *seen, class_="what")]
    if item.warnings:
        heading.append(tag("span", count_text(len(item.warnings), "warning"), class_="chip"))
    heading.append(tag("span", item.verdict.word, class_="verdict"))
    return tag(
        "details",
        tag("summary", *heading),
        tag("div", *_evidence(item), class_="evidence"),
        class_=f"claim {state.value}",
        open="" if counts and not proven else None,
    )


def _evidence(item: EvidenceItem) -> Iterator[Markup]:
    rows = [("Expected", item.expected), ("Observed", item.observed), ("Reason", item.reason)]
    listed = [tag("div", tag("dt", name), tag("dd", text)) for name, text in rows if text]
    if item.where:
        listed.append(tag("div", tag("dt", "Where"), tag("dd", _places(item.where))))
    yield tag("dl", *listed, class_="facts")
    yield from (_table(table) for table in item.tables)
    if item.command:
        yield _command(item.command)
    if item.notes:
        yield tag("ul", *(_note(note) for note in item.notes), class_="notes")
    yield tag("p", "check ", tag("code", item.check), class_="check")


def _table(table: EvidenceTable) -> Markup:
    """Scrolls in its own box where it is wider than the page."""
    head = tag("tr", *(tag("th", name, scope="col") for name in table.head))
    rows = (
        tag("tr", *(tag("td", cell, class_="figure" if _is_figure(cell) else None) for cell in row))
        for row in table.rows
    )
    content = tag("table", tag("caption", table.title), tag("thead", head), tag("tbody", *rows))
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=table.title)


def _is_figure(cell: str) -> bool:
    return cell[:1].isdigit()


def _note(note: Note) -> Markup:
    warns = note.severity is Severity.WARN
    label = (tag("b", "Warning "),) if warns else ()
    text = (*label, note.text)
    places = (tag("div", _places(note.where), class_="places"),) if note.where else ()
    command = (_command(note.command),) if note.command else ()
    return tag("li", tag("p", *text), *places, *command, class_="warn" if warns else "info")


def _command(command: str) -> Markup:
    """A command that one click selects; it scrolls in its own box, and can be reached with the keyboard."""
    return tag("pre", command, class_="command", tabindex="0", title="Click selects the whole command")


def _places(where: Iterable[Location]) -> Markup:
    return tag("ul", *(tag("li", tag("code", str(place))) for place in where), class_="where")
