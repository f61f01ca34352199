"""The kernel that carries the state through chunks, against the loop that it replaces."""

from __future__ import annotations

import pytest
import torch

from draftproof.kernels.gated_delta.chunked import scan_chunks
from draftproof.kernels.gated_delta.triton import scan_chunks as in_one_kernel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def check(heads: int, chunks: int, rows: int, key_dim: int, value_dim: int, device: str) -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device) * 0.1

    solved = normal(heads, chunks, rows, value_dim + key_dim)
    pairs = normal(heads, chunks, rows, rows)
    query, keys = normal(heads, chunks, rows, key_dim), normal(heads, chunks, rows, key_dim)
    fade = torch.rand(heads, chunks, 1, 1, generator=generator).to(device)
    state, again = (normal(heads, key_dim, value_dim) for _ in range(2))
    again.copy_(state)
    outputs = in_one_kernel(solved, pairs, query, keys, fade, state)
    expected = scan_chunks(solved, pairs, query, keys, fade, again)
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(state, again, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("key_dim", "value_dim"), [(16, 16), (16, 64), (32, 32)])
def test_it_is_the_loop(key_dim: int, value_dim: int) -> None:
    check(2, 3, 16, key_dim, value_dim, DEVICE)


@pytest.mark.gpu
def test_at_the_widths_of_a_real_model() -> None:
    check(32, 5, 64, 128, 128, "cuda")
