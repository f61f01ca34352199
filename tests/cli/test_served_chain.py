"""A chain report as the server's page shows it."""

from __future__ import annotations

from draftproof.cli.served_chain import served_chain
from draftproof.evidence.chain import ChainReport, LinkReport, Subject
from draftproof.evidence.chain_links import Link
from draftproof.evidence.item import EvidenceItem
from draftproof.evidence.verdict import Verdict
from draftproof.server.served_chain import LinkState, ServedClaim


def report(*verdicts: Verdict) -> ChainReport:
    """The first links with one claim each."""
    links = tuple(
        LinkReport(
            link,
            (
                EvidenceItem(
                    check="one",
                    claim=f"{link.value} holds.",
                    verdict=verdict,
                    expected="yes",
                    observed="seen",
                    reason="no file" if verdict is Verdict.UNKNOWN else "",
                ),
            ),
            seconds=0.1,
        )
        for link, verdict in zip(Link, verdicts, strict=False)
    )
    return ChainReport(Subject("tiny", "/somewhere/tiny", "Qwen3_5"), links, "1.0", "2026-01-01T00:00:00Z")


def test_all_seven_links_are_shown_and_those_not_run_say_what_they_need() -> None:
    shown = served_chain(report(Verdict.PROVEN, Verdict.PROVEN))
    assert [link.name for link in shown.links] == [link.value for link in Link]
    assert [link.state for link in shown.links] == [LinkState.PROVEN] * 2 + [LinkState.NOT_RUN] * 5
    assert shown.links[5].summary == "Not run: it needs a running engine: --run."
    assert (shown.checkpoint, shown.architecture, shown.command) == (
        "tiny",
        "Qwen3_5",
        "draftproof verify tiny",
    )


def test_links_behind_a_broken_one_do_not_count() -> None:
    shown = served_chain(report(Verdict.DISPROVED, Verdict.PROVEN))
    assert [link.state for link in shown.links[:2]] == [LinkState.DISPROVED, LinkState.VOID]


def test_an_unknown_claim_shows_its_reason_and_another_what_was_seen() -> None:
    first, second, *_ = served_chain(report(Verdict.PROVEN, Verdict.UNKNOWN)).links
    assert first.claims == (ServedClaim("config holds.", LinkState.PROVEN, "seen"),)
    assert second.claims == (ServedClaim("weights holds.", LinkState.UNKNOWN, "no file"),)
