"""Uninitialised floating memory is NaN under the fixture, and only there."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.usefixtures("poisoned_memory")
def test_fresh_floating_tensors_are_nan(dtype):
    like = torch.zeros(2, 3, dtype=dtype)
    for tensor in (
        torch.empty(2, 3, dtype=dtype),
        torch.empty_like(like),
        torch.empty_strided((2, 3), (3, 1), dtype=dtype),
        like.new_empty(2, 3),
    ):
        assert tensor.dtype == dtype
        assert torch.isnan(tensor.float()).all()


@pytest.mark.usefixtures("poisoned_memory")
def test_integers_parameters_and_filled_tensors_are_left_alone():
    assert torch.empty(3, dtype=torch.int64).dtype == torch.int64
    assert (torch.zeros(3) == 0).all()
    layer = torch.nn.Linear(4, 4)
    assert torch.isfinite(layer.weight).all()
    assert torch.empty(2, requires_grad=True).requires_grad


def test_the_patch_ends_with_the_fixture():
    assert torch.empty.__name__ == "empty"
