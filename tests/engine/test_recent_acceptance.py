"""Counts of the latest passes."""

from __future__ import annotations

from draftproof.engine.recent_acceptance import RecentAcceptance
from draftproof.speculation.acceptance import AcceptanceCounts

RIGHT, WRONG = AcceptanceCounts.of_pass(1, 1, 2), AcceptanceCounts.of_pass(1, 0, 1)


def test_few_passes_are_all_there() -> None:
    recent = RecentAcceptance()
    assert recent.counts == AcceptanceCounts()
    recent.observe(RIGHT)
    recent.observe(WRONG)
    assert recent.counts == RIGHT + WRONG


def test_old_passes_leave() -> None:
    recent = RecentAcceptance()
    for _ in range(5000):
        recent.observe(RIGHT)
    assert 900 <= recent.counts.passes <= 1000
    for _ in range(1000):
        recent.observe(WRONG)
    assert recent.counts.acceptance_rate == 0.0
