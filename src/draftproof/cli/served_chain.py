"""A chain report as the server's page shows it."""

from __future__ import annotations

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.chain_links import Link
from draftproof.evidence.item import EvidenceItem
from draftproof.evidence.verdict import Verdict
from draftproof.server.served_chain import LinkState, ServedChain, ServedClaim, ServedLink

_STATES = {
    Verdict.PROVEN: LinkState.PROVEN,
    Verdict.DISPROVED: LinkState.DISPROVED,
    Verdict.UNKNOWN: LinkState.UNKNOWN,
}


def served_chain(report: ChainReport) -> ServedChain:
    """All seven links: what was found about those that were run, what the others would need."""
    reports = {one.link: one for one in report.links}
    links = tuple(
        _run_link(report, reports[link]) if link in reports else _link_not_run(link) for link in Link
    )
    command = " ".join(("draftproof", "verify", report.subject.name))
    return ServedChain(report.subject.name, report.subject.architecture, links, command)


def _run_link(chain: ChainReport, report: LinkReport) -> ServedLink:
    state = _STATES[report.verdict] if chain.counts(report) else LinkState.VOID
    claims = tuple(_claim(item) for item in report.items)
    definition = report.link.definition
    return ServedLink(
        definition.number, report.link.value, definition.holds_when, state, report.summary, claims
    )


def _claim(item: EvidenceItem) -> ServedClaim:
    return ServedClaim(item.claim, _STATES[item.verdict], item.reason or item.observed)


def _link_not_run(link: Link) -> ServedLink:
    definition = link.definition
    return ServedLink(
        definition.number,
        link.value,
        definition.holds_when,
        LinkState.NOT_RUN,
        f"Not run: it needs {definition.needs}.",
    )
