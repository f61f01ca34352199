"""Running acceptance by position: right when K varies, and not stuck in the past."""

from __future__ import annotations

import pytest

from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.speculation.acceptance_average import EXPECTED_RATE, MEMORY, AcceptanceAverage


def window(drafts: int, accepted: int) -> AcceptanceCounts:
    return AcceptanceCounts.of_pass(drafts, accepted, accepted + 1)


def test_before_the_first_draft_a_trained_head_is_expected() -> None:
    assert AcceptanceAverage(2).rates == (EXPECTED_RATE, EXPECTED_RATE)


def test_rates_are_conditional_on_the_drafts_before() -> None:
    """Half the windows lose their first draft; of the others nine in ten keep the second."""
    average = AcceptanceAverage(2)
    for number in range(4000):
        average.observe(window(2, 0 if number % 2 else (1 if number % 20 == 0 else 2)))
    assert average.rates == pytest.approx((0.5, 0.9), abs=0.02)
    assert average.expected_tokens == pytest.approx((1.0, 1.5, 1.95), abs=0.04)


def test_short_windows_say_nothing_about_the_positions_that_they_lack() -> None:
    average = AcceptanceAverage(3)
    for _ in range(1000):
        average.observe(window(3, 3))
    before = average.rates
    for _ in range(5000):
        average.observe(window(1, 1))
    assert average.rates[1:] == before[1:]


def test_a_change_is_followed() -> None:
    average = AcceptanceAverage(1)
    for _ in range(10 * MEMORY):
        average.observe(window(1, 1))
    for _ in range(3 * MEMORY):
        average.observe(window(1, 0))
    assert average.rates[0] < 0.06


def test_the_windows_of_a_batch_may_come_as_one() -> None:
    one_by_one, together = AcceptanceAverage(2), AcceptanceAverage(2)
    counts = AcceptanceCounts()
    for accepted in (0, 1, 2, 2):
        one_by_one.observe(window(2, accepted))
        counts += window(2, accepted)
    together.observe(counts)
    assert together.rates == pytest.approx(one_by_one.rates, rel=0.01)


def test_drafts_beyond_the_largest_k_and_windows_without_any_are_ignored() -> None:
    average = AcceptanceAverage(1)
    average.observe(window(3, 1))
    average.observe(window(0, 0))
    assert len(average.rates) == 1
    assert average.rates[0] > EXPECTED_RATE
