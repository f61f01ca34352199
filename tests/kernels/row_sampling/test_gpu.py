"""A real vocabulary on a GPU: the tokens of the definition on the CPU, alone, in batches and replayed.

Noise is the logarithm of a logarithm, which a GPU and a CPU may round differently in the last place; scores
of these seeds are further apart than that.
"""

from __future__ import annotations

import pytest
import torch

from draftproof.kernels.row_sampling import reference
from draftproof.kernels.row_sampling import triton as portable
from draftproof.kernels.row_sampling.slot_sampling import RowChoice, SamplingScratch, SlotSampling
from draftproof.kernels.step_geometry import StepGeometry

pytestmark = pytest.mark.gpu

VOCABULARY = 248_320


def geometry_of(batch: int, rows: int, device: str) -> StepGeometry:
    slots = torch.arange(batch - 1, -1, -1, dtype=torch.int32, device=device)
    lengths = 11 * torch.arange(batch, dtype=torch.int32, device=device) + 3
    return StepGeometry(rows, slots, lengths, lengths, lengths, lengths.view(-1, 1), 16)


def sampling_of(
    batch: int, temperature: float, top_k: int, top_p: float, min_p: float, device: str
) -> SlotSampling:
    seeds = torch.randint(-(2**63), 2**63 - 1, (batch,), generator=torch.Generator().manual_seed(5))
    return SlotSampling(
        temperature=torch.full((batch,), temperature, device=device),
        seeds=seeds.to(device),
        top_k=torch.full((batch,), top_k, dtype=torch.int32, device=device),
        top_p=torch.full((batch,), top_p, dtype=torch.float64, device=device),
        min_p=torch.full((batch,), min_p, dtype=torch.float64, device=device),
    )


@pytest.mark.parametrize(("batch", "rows"), [(1, 4), (8, 1)])
@pytest.mark.parametrize(
    ("choice", "spread", "limits"),
    [
        (RowChoice.LARGEST, 3.0, (0.0, VOCABULARY, 1.0, 0.0)),
        (RowChoice.DRAWN, 1.5, (1.0, VOCABULARY, 1.0, 0.0)),
        (RowChoice.TRUNCATED, 3.0, (0.6, 20, 0.95, 0.0)),
        (RowChoice.TRUNCATED, 3.0, (0.7, VOCABULARY, 0.9, 0.0)),
        (RowChoice.TRUNCATED, 0.5, (1.0, VOCABULARY, 0.9, 0.0)),
        (RowChoice.TRUNCATED, 3.0, (1.0, 5000, 1.0, 0.05)),
    ],
)
def test_tokens_are_the_definition_s(
    batch: int, rows: int, choice: RowChoice, spread: float, limits: tuple[float, int, float, float]
) -> None:
    logits = torch.randn(batch * rows, VOCABULARY, generator=torch.Generator().manual_seed(batch)) * spread
    scratch = SamplingScratch.make(*logits.shape, choice, torch.device("cuda"))
    expected = torch.empty(batch * rows, dtype=torch.int32)
    sampling = sampling_of(batch, *limits, "cpu")
    reference.sample_rows(logits, geometry_of(batch, rows, "cpu"), sampling, choice, scratch, expected)
    on_gpu, geometry = logits.cuda(), geometry_of(batch, rows, "cuda")
    sampling = sampling_of(batch, *limits, "cuda")
    out = torch.full((batch * rows,), -9, dtype=torch.int32, device="cuda")
    for _ in range(2):
        portable.sample_rows(on_gpu, geometry, sampling, choice, scratch, out)
    assert out.tolist() == expected.tolist()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        portable.sample_rows(on_gpu, geometry, sampling, choice, scratch, out)
    out.fill_(-9)
    for _ in range(3):
        graph.replay()
    assert out.tolist() == expected.tolist()
    assert not scratch.arrivals.any()
