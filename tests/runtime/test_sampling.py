"""Sampling parameters: what they accept, what they refuse, and how they say it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from draftproof.errors import UsageError
from draftproof.runtime.sampling import SamplingParameters


def test_the_default_is_greedy_without_any_processing() -> None:
    parameters = SamplingParameters()
    assert parameters.is_greedy
    assert not parameters.has_penalties


@pytest.mark.parametrize(("temperature", "greedy"), [(0, True), (1e-6, True), (1e-5, False), (0.7, False)])
def test_greedy_is_a_temperature_of_practically_zero(temperature: float, greedy: bool) -> None:
    assert SamplingParameters(temperature=temperature).is_greedy is greedy


@pytest.mark.parametrize(
    "change",
    [{"repetition_penalty": 1.1}, {"presence_penalty": -0.5}, {"frequency_penalty": 0.1}],
)
def test_each_penalty_counts_as_one(change: dict[str, float]) -> None:
    assert SamplingParameters(**change).has_penalties


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [-0.1, math.nan, math.inf, 1001, 10**400, "1", None, True]),
        ("top_k", [-2, 1.5, True, None]),
        ("top_p", [0, 0.0, -0.1, 1.01, math.nan, math.inf]),
        ("min_p", [-0.01, 1.01, math.nan]),
        ("repetition_penalty", [0.0, -1.0, 0.009, 101, math.nan, math.inf]),
        ("presence_penalty", [-2.1, 2.1, math.nan]),
        ("frequency_penalty", [-2.1, 2.1, -math.inf]),
        ("min_tokens", [-1, 0.5]),
        ("max_tokens", [0, -1, 1.0]),
        ("logprobs", [-1, True, 2.0]),
        ("seed", [2**64, -(2**63) - 1, 1.0, None]),
        ("logit_bias", [((-1, 1.0),), ((3, 100.5),), ((3, math.nan),), ((3, 1.0), (3, 2.0)), ((1.0, 1.0),)]),
        ("stop_token_ids", [(-1,), (1.0,)]),
        ("stop_strings", [("",), (3,)]),
    ],
)
def test_a_field_out_of_range_is_named_with_its_value_and_range(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(UsageError, match=field) as caught:
            SamplingParameters(**{field: value})
        assert "allowed: " in str(caught.value)
        assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [0, 1e-300, 2.0, 1000]),
        ("top_k", [-1, 0, 1, 10**9]),
        ("top_p", [1e-9, 1, 1.0]),
        ("min_p", [0, 1]),
        ("repetition_penalty", [0.01, 100]),
        ("presence_penalty", [-2, 2]),
        ("logprobs", [None, 0, 20]),
        ("logit_bias", [((0, -100), (1, 100.0))]),
    ],
)
def test_the_ends_of_each_range_are_allowed(field: str, values: list[Any]) -> None:
    for value in values:
        assert getattr(SamplingParameters(**{field: value}), field) == value


def test_min_tokens_may_not_exceed_max_tokens() -> None:
    assert SamplingParameters(min_tokens=4, max_tokens=4).min_tokens == 4
    with pytest.raises(UsageError, match="min_tokens is 5; allowed: at most max_tokens"):
        SamplingParameters(min_tokens=5, max_tokens=4)


@pytest.mark.parametrize(
    ("seed", "signed"), [(0, 0), (-1, -1), (2**64 - 1, -1), (2**63 - 1, 2**63 - 1), (2**63, -(2**63))]
)
def test_a_seed_keeps_its_64_bits(seed: int, signed: int) -> None:
    assert SamplingParameters(seed=seed).signed_seed == signed


def test_requests_without_a_seed_differ_and_can_be_repeated() -> None:
    first, second = SamplingParameters(), SamplingParameters()
    assert first.seed != second.seed
    assert dataclasses.replace(first) == first
