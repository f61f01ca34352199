"""The kernel that carries the state through chunks, against the loop that it replaces."""

from __future__ import annotations

import pytest
import torch

from draftproof.kernels.gated_delta import chunked
from draftproof.kernels.gated_delta.chunked import scan_chunks
from draftproof.kernels.gated_delta.reference import gated_delta
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


def test_views_in_another_order_are_read_as_what_they_are() -> None:
    generator = torch.Generator().manual_seed(1)

    def turned(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(DEVICE).mT * 0.1

    solved, pairs, query, keys = (
        turned(2, 3, 32, 16),
        turned(2, 3, 16, 16),
        turned(2, 3, 16, 16),
        turned(2, 3, 16, 16),
    )
    fade = turned(3, 2, 1, 1).transpose(0, 1)
    state = torch.zeros(2, 16, 16, device=DEVICE)
    again = state.clone()
    outputs = in_one_kernel(solved, pairs, query, keys, fade, state)
    expected = scan_chunks(solved.clone(), pairs, query, keys, fade, again)
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(state, again, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [20, 64, 150])
def test_the_whole_rule_with_it_is_the_rule_row_by_row(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the rule hands to the kernel lies in memory as the kernel reads it, filled up or not."""
    monkeypatch.setattr(chunked, "_scan_for", lambda key, value: in_one_kernel)
    generator = torch.Generator().manual_seed(rows)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(DEVICE)

    query, key = (torch.nn.functional.normalize(normal(1, rows, 3, 16), dim=-1) for _ in range(2))
    value, decay, beta = normal(1, rows, 3, 32), -normal(1, rows, 3).abs(), normal(1, rows, 3).sigmoid()
    state = normal(1, 3, 16, 32)
    expected = gated_delta(query, key, value, decay, beta, state.clone(), rows)
    found = chunked.gated_delta_chunked(query, key, value, decay, beta, state.clone(), rows)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
def test_at_the_widths_of_a_real_model() -> None:
    check(32, 5, 64, 128, 128, "cuda")
