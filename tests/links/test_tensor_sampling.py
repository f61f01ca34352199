"""What is read when not everything is: from the first row to the last, always the same, never too much."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.checkpoint.header import TensorEntry
from draftproof.links.tensor_sampling import (
    LARGEST_ROW,
    MatrixForm,
    RowRun,
    chosen_runs,
    kind_of,
    matrix_form,
    pieces,
    sample_of_kinds,
    spread,
)


def entry(*shape, width=2):
    return TensorEntry("t", "BF16", shape, "f", 0, math.prod(shape) * width)


@pytest.mark.parametrize(
    ("shape", "form"),
    [((4, 8), (4, 16)), ((3, 4, 8), (12, 16)), ((8,), (1, 16)), ((), (1, 2)), ((0, 8), (0, 0))],
)
def test_any_tensor_is_rows_of_its_last_dimension(shape, form):
    assert matrix_form(entry(*shape)) == form


def test_a_small_tensor_is_read_whole():
    assert chosen_runs(MatrixForm(100, 10), 1000) == (RowRun(0, 100),)
    assert chosen_runs(MatrixForm(10**6, 10), None) == (RowRun(0, 10**6),)


def test_nothing_is_read_of_an_empty_tensor_or_an_absurd_row():
    assert chosen_runs(MatrixForm(0, 0), 1000) == ()
    assert chosen_runs(MatrixForm(1, LARGEST_ROW + 1), None) == ()


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 10**6))
def test_runs_are_ordered_apart_inside_and_within_budget(rows, row_bytes, budget):
    runs = chosen_runs(MatrixForm(rows, row_bytes), budget)
    assert runs
    for run, following in zip(runs, (*runs[1:], RowRun(rows, 0)), strict=True):
        assert run.length > 0
        assert run.first + run.length <= following.first
    assert sum(run.length for run in runs) * row_bytes <= max(budget, row_bytes)


@given(st.integers(17, 10**6))
def test_first_and_last_rows_are_always_among_them(rows):
    runs = chosen_runs(MatrixForm(rows, 1), 16)
    assert runs[0].first == 0
    assert runs[-1].first + runs[-1].length == rows


@given(st.integers(0, 50), st.integers(1, 500), st.integers(1, 100), st.integers(1, 4000))
def test_pieces_are_the_run(first, count, row_bytes, largest):
    parts = list(pieces(RowRun(first, count), row_bytes, largest))
    assert [row for part in parts for row in range(part.first, part.first + part.length)] == list(
        range(first, first + count)
    )
    assert all(part.length == 1 or part.length * row_bytes <= largest for part in parts)


def test_modules_of_one_kind_differ_in_numbers_only():
    assert kind_of("model.layers.10.mlp.experts.3.up_proj") == "model.layers.#.mlp.experts.#.up_proj"


def test_a_spread_reaches_from_the_first_to_the_last_in_natural_order():
    names = [f"layers.{number}" for number in reversed(range(100))]
    assert spread(names, 4) == ["layers.0", "layers.33", "layers.66", "layers.99"]
    assert spread(["b.2", "a.10"], 4) == ["b.2", "a.10"]


def test_a_spread_of_one_is_from_the_middle():
    assert spread(["l.0", "l.1", "l.2"], 1) == ["l.1"]
    assert spread(["l.0"], 0) == []


def test_every_kind_is_in_the_sample():
    names = [f"layers.{n}.{leaf}" for n in range(9) for leaf in ("up", "down")]
    assert len(sample_of_kinds(names, 2)) == 4
