"""Only the verdict is chained: links run side by side, but a later one never counts after a broken one."""

import pytest

from draftproof.evidence import Link, LinkReport, Verdict
from tests.evidence.examples import broken_config, chain, item, link, open_weights, proven

PROVEN, DISPROVED, UNKNOWN = Verdict.PROVEN, Verdict.DISPROVED, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("first", "second", "verdict", "exit_code"),
    [
        (PROVEN, PROVEN, PROVEN, 0),
        (PROVEN, DISPROVED, DISPROVED, 1),
        (DISPROVED, PROVEN, DISPROVED, 1),
        (DISPROVED, UNKNOWN, DISPROVED, 1),
        (PROVEN, UNKNOWN, UNKNOWN, 3),
        (UNKNOWN, PROVEN, UNKNOWN, 3),
        (UNKNOWN, DISPROVED, DISPROVED, 1),
    ],
)
def test_the_chained_verdict(first, second, verdict, exit_code):
    report = chain(link(Link.CONFIG, first), link(Link.WEIGHTS, second))
    assert (report.verdict, report.exit_code) == (verdict, exit_code)


def test_links_after_a_broken_one_do_not_count():
    report = broken_config()
    assert [report.counts(part) for part in report.links] == [True, False]
    assert report.summary.startswith("broken at link 1 (config): 14 tensors; missing mtp.fc.weight")


def test_an_unknown_link_says_what_is_open():
    assert open_weights().summary == "open at link 2 (weights): nobody looked"


def test_a_report_says_which_links_were_not_run_and_what_stays_open():
    report = proven()
    assert report.not_run == (Link.CODE, Link.LAUNCH, Link.BACKEND, Link.FUNCTION, Link.SPEED)
    assert any("was trained for this trunk" in clause for clause in report.does_not_prove)


def test_a_link_without_claims_is_unknown():
    assert LinkReport(Link.CONFIG, (), 0.0).verdict is UNKNOWN
    assert chain().verdict is UNKNOWN


def test_links_come_in_order_and_once():
    with pytest.raises(ValueError, match="in order"):
        chain(link(Link.WEIGHTS, PROVEN), link(Link.CONFIG, PROVEN))
    with pytest.raises(ValueError, match="in order"):
        chain(link(Link.CONFIG, PROVEN), link(Link.CONFIG, PROVEN))


@pytest.mark.parametrize(("verdict", "reason"), [(UNKNOWN, ""), (PROVEN, "because"), (DISPROVED, "because")])
def test_an_unknown_claim_needs_a_reason_and_no_other_has_one(verdict, reason):
    with pytest.raises(ValueError, match="a reason belongs to UNKNOWN"):
        item(verdict, reason=reason)


def test_the_links_are_numbered_from_one_to_seven():
    assert [each.number for each in Link] == [1, 2, 3, 4, 5, 6, 7]
