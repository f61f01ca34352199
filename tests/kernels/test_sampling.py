"""Drawing tokens against the definition, written with sorted lists and plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.kernels.noise.reference import vocabulary_noise
from draftproof.kernels.sampling.reference import draw_tokens


def kept_tokens(logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    """Token ids that truncation leaves."""
    largest = max(logits)
    weights = {token: math.exp((value - largest) / temperature) for token, value in enumerate(logits)}
    kept = {token for token, weight in weights.items() if weight > 0}
    if top_k < len(logits):
        smallest = sorted((weights[token] for token in kept), reverse=True)[:top_k][-1]
        kept = {token for token in kept if weights[token] >= smallest}
    if top_p < 1:
        total, reached = sum(weights[token] for token in kept), 0.0
        for weight in sorted((weights[token] for token in kept), reverse=True):
            reached += weight
            if reached >= top_p * total:
                kept = {token for token in kept if weights[token] >= weight}
                break
    return {token for token in kept if weights[token] >= min_p}


def draw(logits: Tensor, rows: list[tuple[float, int, float, float, int, int]]) -> list[int]:
    temperature, top_k, top_p, min_p, seeds, positions = zip(*rows, strict=True)
    return draw_tokens(
        logits,
        torch.tensor(temperature),
        torch.tensor(top_k),
        torch.tensor(top_p, dtype=torch.float64),
        torch.tensor(min_p, dtype=torch.float64),
        torch.tensor(seeds),
        torch.tensor(positions),
    ).tolist()


# Logits on a coarse grid have many ties; temperatures are powers of two, so that both sides divide alike, and
# the limits avoid sums that land on a border in one order of rounding and beside it in another.
ROW = st.tuples(
    st.sampled_from([0.25, 0.5, 1.0, 2.0]),
    st.integers(1, 14),
    st.sampled_from([0.113, 0.517, 0.8931, 0.9703, 1.0]),
    st.sampled_from([0.0, 0.0513, 0.3307]),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**40),
)
LOGIT = st.one_of(st.integers(-12, 12).map(lambda value: value / 4), st.just(-math.inf))
LOGITS = st.lists(LOGIT, min_size=13, max_size=13).filter(lambda row: max(row) > -math.inf)


@given(st.lists(st.tuples(LOGITS, ROW), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_draws_the_best_of_logit_plus_noise_among_what_is_kept(
    batch: list[tuple[list[float], tuple[float, int, float, float, int, int]]],
) -> None:
    rows = [row for _, row in batch]
    drawn = draw(torch.tensor([logits for logits, _ in batch]), rows)
    for (logits, (temperature, top_k, top_p, min_p, seed, position)), token in zip(batch, drawn, strict=True):
        noise = vocabulary_noise(torch.tensor([seed]), torch.tensor([position]), len(logits))[0]
        scores = (torch.tensor(logits) - max(logits)) / temperature + noise
        kept = kept_tokens(logits, temperature, top_k, top_p, min_p)
        best = max(scores[candidate].item() for candidate in kept)
        assert token == min(candidate for candidate in kept if scores[candidate].item() == best)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p", "kept"),
    [
        (1.0, 7, 1.0, 0.0, {0, 1, 2, 3, 4, 5}),
        (1.0, 3, 1.0, 0.0, {1, 2, 3}),
        (1.0, 7, 0.5, 0.0, {1, 3}),  # the largest shares are 0.37, 0.24
        (1.0, 2, 0.6, 0.0, {1, 3}),  # after top-k the shares are 0.60, 0.40
        (1.0, 2, 0.59, 0.0, {1}),
        (1.0, 7, 1.0, 0.3, {1, 2, 3, 5}),  # relative: 1, 0.67, 0.5, 0.33 and 0.2, 0.1 below
        (2.0, 7, 1.0, 0.5, {1, 2, 3, 5}),  # temperature 2 makes square roots of them
        (1.0, 4, 0.9, 0.45, {1, 2, 3}),
    ],
)
def test_each_limit_leaves_these_tokens(
    temperature: float, top_k: int, top_p: float, min_p: float, kept: set[int]
) -> None:
    weights = torch.tensor([[0.2, 3.0, 1.5, 2.0, 0.5, 1.0, 0.0]]) / 3
    draws = 400
    rows = [(temperature, top_k, top_p, min_p, 3, position) for position in range(draws)]
    assert set(draw(weights.log().expand(draws, 7), rows)) == kept
    assert kept_tokens(weights.log()[0].tolist(), temperature, top_k, top_p, min_p) == kept


@given(st.lists(st.tuples(LOGITS, ROW), min_size=2, max_size=5))
@settings(max_examples=75, deadline=None)
def test_a_row_is_drawn_alike_alone_and_in_any_batch(
    batch: list[tuple[list[float], tuple[float, int, float, float, int, int]]],
) -> None:
    together = draw(torch.tensor([logits for logits, _ in batch]), [row for _, row in batch])
    alone = [draw(torch.tensor([logits]), [row])[0] for logits, row in batch]
    assert together == alone


def test_wide_rows_are_drawn_alike_alone_and_in_a_batch() -> None:
    """Real vocabularies are wide enough for vectorised and threaded paths."""
    logits = torch.randn(6, 50_001, generator=torch.Generator().manual_seed(0)) * 3
    rows = [
        (1.0, 50_001, 1.0, 0.0, 1, 5),
        (0.7, 20, 0.95, 0.0, 2, 6),
        (0.7, 50, 0.5, 0.02, 2, 6),
        (1.3, 50_001, 0.9, 0.0, 3, 7),
        (2.0, 50_001, 1.0, 0.01, 4, 8),
        (1.0, 1, 1.0, 0.0, 5, 9),
    ]
    alone = [draw(logits[index : index + 1], [row])[0] for index, row in enumerate(rows)]
    assert draw(logits, rows) == alone
    assert draw(logits.flip(0), rows[::-1]) == alone[::-1]
    assert alone[5] == logits[5].argmax().item()


def test_equal_logits_are_kept_together() -> None:
    """Two tokens tie for the one place of top-k: over many positions both are drawn, and no other."""
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0]]).expand(200, 4)
    assert set(draw(logits, [(1.0, 1, 1.0, 0.0, 7, position) for position in range(200)])) == {1, 2}
    assert set(draw(logits, [(1.0, 4, 0.2, 0.0, 7, position) for position in range(200)])) == {1, 2}


@pytest.mark.parametrize("temperature", [1e-5, 1000.0])
def test_extreme_temperatures_do_not_overflow(temperature: float) -> None:
    logits = torch.tensor([[-math.inf, 200.0, 199.0, -3e38]])
    assert draw(logits, [(temperature, 4, 1.0, 0.0, 0, 0)])[0] in ({1} if temperature < 1 else {1, 2})


def test_fewer_tokens_than_top_k() -> None:
    logits = torch.full((1, 6), -math.inf)
    logits[0, 4] = -50.0
    assert draw(logits, [(1.0, 3, 0.9, 0.1, 0, 0)]) == [4]


def test_draws_follow_the_truncated_softmax() -> None:
    """top-k 4 of 6 at temperature 2: chi-square with 3 degrees of freedom, p above 0.001."""
    logits = torch.tensor([1.0, 3.0, 0.0, 2.0, -1.0, 1.5])
    draws = 8000
    drawn = draw(logits.expand(draws, 6), [(2.0, 4, 1.0, 0.0, 21, position) for position in range(draws)])
    observed = torch.tensor(drawn).bincount(minlength=6).double()
    assert observed[2] == observed[4] == 0
    kept = [0, 1, 3, 5]
    expected = (logits[kept].double() / 2).softmax(0) * draws
    assert ((observed[kept] - expected) ** 2 / expected).sum().item() < 16.27
