"""Outputs that go round in circles, of any period up to the bound, and outputs that only look like it."""

from __future__ import annotations

import random

import pytest

from draftproof.engine.repetition import (
    LONGEST_PERIOD,
    TOKENS_BETWEEN_LOOKS,
    RepetitionWatch,
    repeated_period,
)


def circle(period: int) -> list[int]:
    return list(range(100, 100 + period))


@pytest.mark.parametrize("period", [1, 2, 7, 19, 20])
def test_twenty_tokens_ten_times_are_a_circle(period: int) -> None:
    tokens = (circle(period) * 200)[:200]
    assert repeated_period(tokens) == period
    assert repeated_period([*range(1000), *tokens]) == period
    assert repeated_period(tokens[:199]) is None


@pytest.mark.parametrize("period", [21, 40, LONGEST_PERIOD])
def test_a_longer_unit_counts_from_its_tenth_time(period: int) -> None:
    tokens = circle(period) * 10
    assert repeated_period(tokens) == period
    assert repeated_period(tokens[1:]) is None


def test_beyond_the_bound_nothing_is_looked_for() -> None:
    assert repeated_period(circle(LONGEST_PERIOD + 1) * 20) is None


def test_one_other_token_within_the_span_breaks_the_circle() -> None:
    tokens = circle(5) * 40
    for place in (0, 1, 100, 198, 199):
        assert repeated_period([*tokens[:place], 7, *tokens[place + 1 :]]) is None


def test_what_lies_before_the_span_does_not_matter_and_what_comes_after_ends_it() -> None:
    assert repeated_period([*range(50), *circle(3) * 100]) == 3
    assert repeated_period([*circle(3) * 100, 7]) is None


def test_text_with_variety_is_no_circle() -> None:
    chance = random.Random(1)
    assert repeated_period([chance.randrange(3) for _ in range(2000)]) is None
    assert repeated_period([]) is None


def test_the_watch_finds_a_circle_soon_and_lets_go_of_it() -> None:
    watch, output = RepetitionWatch(), list(range(500))
    for token in circle(4) * 75:
        output.append(token)
        watch.look("r", output)
    assert watch.periods == {"r": 4}
    output += range(1000, 1000 + TOKENS_BETWEEN_LOOKS)
    watch.look("r", output)
    assert watch.periods == {}


def test_a_request_that_left_is_forgotten() -> None:
    watch = RepetitionWatch()
    watch.look("r", circle(4) * 75)
    watch.forget("r")
    assert watch.periods == {}
    watch.look("r", circle(4) * 60)
    assert watch.periods == {"r": 4}, "a new request of that name is looked at from its first token"
