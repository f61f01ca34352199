"""The Triton kernels against the definition, under the interpreter, on small odd shapes."""

from __future__ import annotations

import pytest
import torch

from draftproof.kernels.decode_attention import reference
from draftproof.kernels.decode_attention import triton as kernels
from draftproof.kernels.decode_attention.parameters import Past
from tests.kernels.decode_attention.cases import Shape, make_case
from tests.kernels.decode_attention.running import TOLERANCE, run

SHAPES = {
    "tiny": Shape(),
    "odd group, ungated": Shape(6, 2, 16, 8, gated=False),
    "group of one": Shape(2, 2, 32, 32),
    "more rows than a tile": Shape(16, 1, 16, 4),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("past", Past)
def test_it_is_the_definition(shape: Shape, splits: int, past: Past) -> None:
    rows = 6 if shape.heads == 16 else 3
    lengths = [0, 64, 150]
    case, again = (make_case(shape, lengths, rows) for _ in range(2))
    expected = run(reference, again, splits)
    torch.testing.assert_close(run(kernels, case, splits, past=past), expected, **TOLERANCE)
    torch.testing.assert_close(case.keys, again.keys, equal_nan=True, atol=8e-3, rtol=8e-3)
    assert torch.equal(case.values.nan_to_num(), again.values.nan_to_num())


@pytest.mark.parametrize("splits", [1, 3])
def test_the_selected_row(splits: int) -> None:
    case, again = (make_case(Shape(), [7, 0, 130], 4) for _ in range(2))
    index = torch.tensor([3, 0, 2], dtype=torch.int32)
    expected = run(reference, again, splits, index)
    torch.testing.assert_close(run(kernels, case, splits, index), expected, **TOLERANCE)
    torch.testing.assert_close(case.keys, again.keys, equal_nan=True, atol=8e-3, rtol=8e-3)


def test_padded_sequences_and_rows_past_the_page_table_harm_nobody() -> None:
    alone = make_case(Shape(), [14], 4, room=16)
    padded = make_case(Shape(), [14], 4, room=16, padded=2)
    padded.projected[:4] = alone.projected
    first, second = run(kernels, alone, 2), run(kernels, padded, 2)
    assert torch.equal(first[:2], second[:2])
    assert not first[:2].isnan().any()
    assert torch.equal(alone.keys[1:], padded.keys[1:])


def test_reasons_against_a_call() -> None:
    case = make_case(Shape(), [3], 1, dtype=torch.float32)
    assert "not bfloat16" in str(kernels.supports(case.projected, case.parameters))
    case = make_case(Shape(head_dim=48), [3], 1)
    assert "head_dim 48" in str(kernels.supports(case.projected, case.parameters))
    case = make_case(Shape(), [3], 1)
    assert kernels.supports(case.projected, case.parameters) is None
