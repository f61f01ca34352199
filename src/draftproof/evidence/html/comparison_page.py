"""Several chains as a page: what differs in a table, then every chain whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from draftproof.evidence.chain_links import Link
from draftproof.evidence.comparison import Agreement, Cell, ComparisonReport, ComparisonRow
from draftproof.evidence.html.chain_page import verdict_line
from draftproof.evidence.html.link_sections import link_sections
from draftproof.evidence.html.markup import Markup, joined, tag
from draftproof.evidence.html.page import footer, page, subject_facts, subject_heading, unproven
from draftproof.evidence.html.picture import RingState, badge, chain_picture, state_of
from draftproof.evidence.quantities import count_text, shortened

_REASON_LENGTH = 220


def comparison_to_html(report: ComparisonReport) -> str:
    """The whole report, ending with a newline."""
    first = report.chains[0]
    clauses = dict.fromkeys(clause for chain in report.chains for clause in chain.does_not_prove)
    state = state_of(report.verdict)
    return page(
        f"{first.subject.name} in {count_text(len(report.chains), 'stack')}",
        subject_heading(first.subject),
        tag(
            "div",
            badge(state, report.verdict.word),
            tag("p", report.summary[:1].upper() + report.summary[1:]),
            class_=f"verdictline {state.value}",
            role="status",
        ),
        _overview(report),
        subject_facts(first.subject, ", ".join(report.labels)),
        *_tables(report),
        _shared(report),
        *(_chain(report, number) for number in range(len(report.chains))),
        unproven(tuple(clauses)),
        footer(first),
    )


def _anchors(report: ComparisonReport, number: int) -> Callable[[Link], str]:
    """Shared links are on the page once, the others once a stack."""
    shared = {link.link for link in report.shared_links}
    return lambda link: link.value if link in shared else f"stack-{number + 1}-{link.value}"


def _overview(report: ComparisonReport) -> Markup:
    """One small chain a stack."""
    rows = (
        tag(
            "div",
            tag("h2", label, class_="label"),
            chain_picture(chain, _anchors(report, number)),
            class_="lane",
        )
        for number, (label, chain) in enumerate(zip(report.labels, report.chains, strict=True))
    )
    return tag("div", *rows, class_="lanes")


def _tables(report: ComparisonReport) -> Iterator[Markup]:
    rows = report.claim_rows
    different = [row for row in rows if row.agreement is Agreement.DIFFERENT]
    failing = [row for row in rows if row.agreement is Agreement.SAME and not row.holds_everywhere]
    holding = [row for row in rows if row.agreement is Agreement.SAME and row.holds_everywhere]
    yield _table(report, "What differs", different, "Every claim has the same verdict in all stacks.")
    if failing:
        yield _table(report, "What fails or is open wherever it is asked", failing, "")
    if holding:
        yield tag(
            "details",
            tag("summary", f"{count_text(len(holding), 'claim')} proven in every stack that makes them"),
            tag("ul", *(tag("li", _name(row)) for row in holding), class_="unproven"),
            class_="card fold",
        )


def _table(report: ComparisonReport, title: str, rows: list[ComparisonRow], empty: str) -> Markup:
    name = title.lower().replace(" ", "-")
    head = tag(
        "tr", tag("th", "Claim", scope="col"), *(tag("th", label, scope="col") for label in report.labels)
    )
    body = (
        tag("tr", tag("th", _name(row), scope="row"), *(_cell(cell) for cell in row.cells)) for row in rows
    )
    table = tag(
        "div",
        tag("table", tag("thead", head), tag("tbody", *body)),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_labelledby=name,
    )
    return tag(
        "section",
        tag("h2", title, id=name),
        table if rows else tag("p", empty),
        class_="card",
        aria_labelledby=name,
    )


def _name(row: ComparisonRow) -> Markup:
    return joined((tag("span", f"{row.link.number} {row.link.value}", class_="linkname"), " ", row.title))


def _cell(cell: Cell | None) -> Markup:
    if cell is None:
        return tag("td", badge(RingState.NOT_RUN, "not asked"))
    parts: list[Markup] = [
        badge(state_of(cell.verdict) if cell.counts else RingState.VOID, cell.verdict.word)
    ]
    if cell.reason:
        parts.append(tag("p", shortened(cell.reason, _REASON_LENGTH)))
    return tag("td", *parts)


def _shared(report: ComparisonReport) -> Markup:
    """The checkpoint's own links, which are the same in every stack."""
    if not report.shared_links:
        return joined(())
    return tag(
        "details",
        tag("summary", tag("h2", "The checkpoint itself")),
        link_sections(report.chains[0], report.shared_links, _anchors(report, 0)),
        class_="whole",
    )


def _chain(report: ComparisonReport, number: int) -> Markup:
    chain = report.chains[number]
    state = state_of(chain.verdict)
    own = [link for link in chain.links if link not in report.shared_links]
    return tag(
        "details",
        tag("summary", tag("h2", report.labels[number]), badge(state, chain.verdict.word)),
        verdict_line(chain),
        link_sections(chain, own, _anchors(report, number)),
        class_="whole",
    )
