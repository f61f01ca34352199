"""The figures from which faults are told."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.links.value_statistics import NOTHING_READ, measure, merge

FLOATS = st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), max_size=40)


def array(*values):
    return np.array(values, np.float32)


def test_plain_figures():
    figures = measure(array(0, -3, 4, 0))
    assert (figures.count, figures.zeros, figures.negative, figures.not_finite) == (4, 2, 1, 0)
    assert (figures.minimum, figures.maximum, figures.mean, figures.rms) == (-3, 4, 0.25, 2.5)


@pytest.mark.parametrize(
    ("values", "all_zero", "constant"),
    [
        ([0, 0], True, True),
        ([1, 1], False, True),
        ([0, 1], False, False),
        ([7], False, False),
        ([math.nan, math.nan], False, False),
    ],
)
def test_zero_and_constant(values, all_zero, constant):
    figures = measure(array(*values))
    assert (figures.all_zero, figures.constant) == (all_zero, constant)


def test_values_that_are_not_finite_are_counted_and_left_out():
    figures = measure(array(math.nan, math.inf, -math.inf, 2))
    assert (figures.not_finite, figures.maximum, figures.rms) == (3, 2, 2)


def test_squares_beyond_float32_are_still_finite():
    assert measure(array(3e30, 3e30)).rms == pytest.approx(3e30)


def test_nothing_read_has_no_mean():
    assert math.isnan(NOTHING_READ.mean)
    assert math.isnan(measure(array(math.nan)).rms)


@given(FLOATS, FLOATS)
def test_parts_measured_apart_are_the_whole(first, second):
    whole, parts = measure(array(*first, *second)), merge([measure(array(*first)), measure(array(*second))])
    assert (whole.count, whole.zeros, whole.negative, whole.not_finite) == (
        parts.count,
        parts.zeros,
        parts.negative,
        parts.not_finite,
    )
    assert (whole.minimum, whole.maximum) == (parts.minimum, parts.maximum)
