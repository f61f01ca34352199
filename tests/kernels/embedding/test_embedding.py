"""Rows that enter a stack against indexing and the layers' own norm."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from draftproof.kernels.embedding import reference
from draftproof.kernels.norm.scale import NormScale
from draftproof.layers.norm import OffsetRmsNorm

triton_form = pytest.importorskip("draftproof.kernels.embedding.triton")
BACKENDS = [pytest.param(reference, id="reference"), pytest.param(triton_form, id="triton")]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = [torch.float32, torch.bfloat16]
HIDDEN, VOCABULARY = 1040, 30


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def norms(dtype: torch.dtype) -> tuple[tuple[OffsetRmsNorm, ...], tuple[NormScale, ...]]:
    """Three norms as the layers hold them, and as the kernels read them."""
    weights = [random(seed, HIDDEN).to(dtype) * 0.3 for seed in (11, 12, 13)]
    scales = tuple(NormScale(weight.float() + 1.0, 1e-6) for weight in weights)
    return tuple(OffsetRmsNorm(weight, 1e-6) for weight in weights), scales


def numbers(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_are_embedded_row_by_row(backend: object, dtype: torch.dtype) -> None:
    embedding = random(0, VOCABULARY, HIDDEN).to(dtype)
    inputs = numbers([1, 2, 3, 4, 5, 6, 7, -1, 29]).view(3, 3)
    out = torch.full((4, HIDDEN), torch.nan, dtype=dtype, device=DEVICE)
    backend.embed_inputs(inputs, numbers([2, 0]), embedding, out)  # type: ignore[attr-defined]
    assert torch.equal(out, embedding[[7, 0, 1, 2]])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_head_takes_embedding_and_hidden_state_each_through_its_norms(
    backend: object, dtype: torch.dtype
) -> None:
    embedding, residual = random(1, VOCABULARY, HIDDEN).to(dtype), random(2, 3, HIDDEN).to(dtype) * 40
    (of_embedding, of_output, of_hidden), scales = norms(dtype)
    tokens = torch.tensor([3, 29, 0], device=DEVICE)
    expected = torch.cat((of_embedding(embedding[tokens]), of_hidden(of_output(residual))), 1)
    out = torch.full((3, 2 * HIDDEN), torch.nan, dtype=dtype, device=DEVICE)
    backend.enter_head(tokens.int(), residual, embedding, *scales, out)  # type: ignore[attr-defined]
    torch.testing.assert_close(out, expected)
    inputs = torch.full((5, 3), -9, dtype=torch.int32, device=DEVICE)
    inputs[[4, 1, 0], 2] = tokens.int()
    out.fill_(torch.nan)
    backend.enter_chain(  # type: ignore[attr-defined]
        inputs, 2, numbers([4, 1, 0]), residual, embedding, *scales, out
    )
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_last_committed_row_of_each_window_is_taken(backend: object) -> None:
    rows = random(3, 6, HIDDEN).bfloat16()
    out = torch.full((2, HIDDEN), torch.nan, dtype=torch.bfloat16, device=DEVICE)
    backend.last_rows(rows, numbers([2, 0]), out)  # type: ignore[attr-defined]
    assert torch.equal(out, rows[[2, 3]])
