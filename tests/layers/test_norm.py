"""The offset norm is x / rms(x) * (1 + weight), in float32 whatever comes in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from draftproof.layers.norm import OffsetRmsNorm

EPSILON = 1e-6


def by_the_book(rows: Tensor, weight: Tensor) -> Tensor:
    wide = rows.double()
    return wide / (wide.square().mean(-1, keepdim=True) + EPSILON).sqrt() * (1 + weight.double())


@pytest.mark.parametrize("shape", [(1, 64), (2, 3, 64), (2, 3, 4, 16), (5, 1)])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_it_follows_the_definition(shape: tuple[int, ...], size: float) -> None:
    generator = torch.Generator().manual_seed(len(shape))
    rows = torch.randn(shape, generator=generator) * size
    weight = torch.randn(shape[-1], generator=generator) * 0.3
    before = rows.clone()
    found = OffsetRmsNorm(weight, EPSILON)(rows)
    assert found.shape == rows.shape
    torch.testing.assert_close(found.double(), by_the_book(rows, weight), atol=1e-5, rtol=1e-5)
    assert torch.equal(rows, before)


def test_a_weight_of_zero_means_one() -> None:
    rows = torch.tensor([[3.0, 4.0]])
    torch.testing.assert_close(
        OffsetRmsNorm(torch.zeros(2), 0.0)(rows), rows / 12.5**0.5, atol=1e-6, rtol=1e-6
    )


def test_rows_of_zeros_stay_zero() -> None:
    assert not OffsetRmsNorm(torch.ones(8), EPSILON)(torch.zeros(2, 8)).any()


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_rows_are_computed_in_float32_and_rounded_once(weight_dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(3, 64, generator=generator).bfloat16()
    weight = (torch.randn(64, generator=generator) * 0.3).to(weight_dtype)
    found = OffsetRmsNorm(weight, EPSILON)(rows)
    assert found.dtype == torch.bfloat16
    exact = by_the_book(rows, weight).float()
    assert ((found.float() - exact).abs() <= exact.abs() * 2**-8 + 1e-6).all()


def test_rows_that_are_a_view_are_read_as_they_lie() -> None:
    rows = torch.randn(2, 3, 4, 32, generator=torch.Generator().manual_seed(2))
    weight = torch.randn(16, generator=torch.Generator().manual_seed(3))
    part = rows.chunk(2, -1)[1]
    found = OffsetRmsNorm(weight, EPSILON)(part)
    torch.testing.assert_close(found.double(), by_the_book(part, weight), atol=1e-5, rtol=1e-5)
