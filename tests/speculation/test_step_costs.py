"""Costs of steps: measured sizes, sizes between them, sizes beyond."""

from __future__ import annotations

import pytest

from draftproof.speculation.step_costs import StepCost, StepCosts

MEASURED = (
    StepCost(1, 0, 0.010),
    StepCost(4, 0, 0.022),
    StepCost(1, 1, 0.014),
    StepCost(4, 1, 0.040),
    StepCost(1, 3, 0.022),
    StepCost(4, 3, 0.060),
)


@pytest.mark.parametrize(
    ("batch", "draft_tokens", "seconds"),
    [
        (1, 0, 0.010),
        (4, 1, 0.040),
        (2, 0, 0.014),  # a third of the way
        (3, 0, 0.018),
        (8, 0, 0.044),  # beyond the largest: in proportion
        (1, 2, 0.018),  # K = 2 was not measured, 1 and 3 were
        (4, 2, 0.050),
        (3, 2, 0.018 + (0.050 - 0.018) * 2 / 3),
    ],
)
def test_a_step_of_any_size_has_a_cost(batch: int, draft_tokens: int, seconds: float) -> None:
    assert StepCosts(MEASURED).seconds(batch, draft_tokens) == pytest.approx(seconds)


def test_a_size_below_the_smallest_costs_what_the_smallest_does() -> None:
    assert StepCosts([StepCost(2, 0, 0.5)]).seconds(1, 0) == 0.5


def test_of_several_measurements_the_least_counts() -> None:
    """Nothing makes a step faster than it is, much makes it slower."""
    assert StepCosts([*MEASURED, StepCost(1, 0, 0.9), StepCost(1, 0, 0.008)]).seconds(1, 0) == 0.008


def test_what_was_measured_is_known() -> None:
    costs = StepCosts(MEASURED)
    assert costs.most_drafts == 3
    assert costs.batches == (1, 4)


@pytest.mark.parametrize(
    "measured",
    [
        [],
        [StepCost(1, 1, 0.1)],
        [StepCost(1, 0, 0.1), StepCost(1, 2, 0.1), StepCost(2, 0, 0.1)],
        [StepCost(0, 0, 0.1)],
        [StepCost(1, 0, 0.0)],
        [StepCost(1, 0, float("nan"))],
        [StepCost(1, 0, float("inf"))],
    ],
)
def test_gaps_and_impossible_figures_are_refused(measured: list[StepCost]) -> None:
    with pytest.raises(ValueError, match=r"K in|cannot be"):
        StepCosts(measured)
