"""Rows sampled on a device: the same tokens as `draw_tokens` and the largest logit, from numbers per slot."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from draftproof.kernels.row_sampling import reference
from draftproof.kernels.row_sampling.slot_sampling import (
    BLOCK,
    LARGE_BLOCK,
    NO_TOKEN,
    RowChoice,
    SamplingScratch,
    SlotSampling,
)
from draftproof.kernels.sampling.reference import draw_tokens
from draftproof.kernels.step_geometry import StepGeometry

triton_form = pytest.importorskip("draftproof.kernels.row_sampling.triton")
BACKENDS = [pytest.param(reference, id="reference"), pytest.param(triton_form, id="triton")]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCABULARY = LARGE_BLOCK + 813
SLOTS = 5


def geometry_of(slots: list[int], rows: int, lengths: list[int]) -> StepGeometry:
    def numbers(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=DEVICE)

    zeros = numbers([0] * SLOTS)
    return StepGeometry(rows, numbers(slots), numbers(lengths), zeros, zeros, zeros.view(-1, 1), 16)


def sampling_of(
    temperature: list[float], top_k: list[int], top_p: list[float], min_p: list[float]
) -> SlotSampling:
    return SlotSampling(
        temperature=torch.tensor(temperature, device=DEVICE),
        seeds=torch.tensor([7, -(2**63), 2**63 - 1, 2**40 + 3, -5], device=DEVICE),
        top_k=torch.tensor(top_k, dtype=torch.int32, device=DEVICE),
        top_p=torch.tensor(top_p, dtype=torch.float64, device=DEVICE),
        min_p=torch.tensor(min_p, dtype=torch.float64, device=DEVICE),
    )


def logits_of(rows: int, columns: int, seed: int = 0, spread: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    # A stride wider than the row and a poisoned margin: nothing beyond a row's own columns may be read.
    wide = torch.full((rows, columns + 5), math.nan)
    wide[:, :columns] = torch.randn(rows, columns, generator=generator) * spread
    return wide.to(DEVICE)[:, :columns]


def sample(
    backend: object, logits: Tensor, geometry: StepGeometry, sampling: SlotSampling, choice: RowChoice
) -> list[int]:
    out = torch.full((logits.shape[0],), -99, dtype=torch.int32, device=DEVICE)
    scratch = SamplingScratch.make(*logits.shape, choice, DEVICE)
    for _ in range(2):
        # Twice, because the counts of arrivals must come back to zero.
        backend.sample_rows(logits, geometry, sampling, choice, scratch, out)  # type: ignore[attr-defined]
    return out.tolist()


def expected_tokens(logits: Tensor, geometry: StepGeometry, sampling: SlotSampling) -> list[int]:
    """The definition, row by row."""
    tokens = []
    for row in range(logits.shape[0]):
        slot = int(geometry.slots[row // geometry.rows])
        position = int(geometry.lengths[slot]) + row % geometry.rows + 1
        if float(sampling.temperature[slot]) == 0.0:
            tokens.append(int(logits[row].cpu().argmax()))
            continue
        drawn = draw_tokens(
            logits[row : row + 1].cpu(),
            *(each[slot : slot + 1].cpu() for each in (sampling.temperature,)),
            sampling.top_k[slot : slot + 1].cpu().long(),
            sampling.top_p[slot : slot + 1].cpu(),
            sampling.min_p[slot : slot + 1].cpu(),
            sampling.seeds[slot : slot + 1].cpu(),
            torch.tensor([position]),
        )
        tokens.append(int(drawn))
    return tokens


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_largest_logit_and_of_equals_the_lowest_id(backend: object) -> None:
    logits = logits_of(4, VOCABULARY)
    logits[1, [BLOCK + 3, 17, VOCABULARY - 1]] = 99.0
    logits[2, [BLOCK - 1, BLOCK]] = 99.0
    logits[3] = -math.inf
    logits[3, VOCABULARY - 1] = -5.0
    geometry = geometry_of([3, 1], 2, [4, 5, 6, 7, 8])
    found = sample(backend, logits, geometry, SlotSampling.greedy(SLOTS, DEVICE), RowChoice.LARGEST)
    assert found == [int(logits[0].argmax()), 17, BLOCK - 1, VOCABULARY - 1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("choice", list(RowChoice))
def test_logits_that_leave_no_choice_give_no_token(backend: object, choice: RowChoice) -> None:
    logits = logits_of(4, VOCABULARY)
    logits[0, BLOCK + 2] = math.nan
    logits[1, VOCABULARY - 1] = math.inf
    logits[2] = -math.inf
    heat = 0.0 if choice is RowChoice.LARGEST else 0.7
    top_k = 20 if choice is RowChoice.TRUNCATED else VOCABULARY
    sampling = sampling_of([heat] * SLOTS, [top_k] * SLOTS, [1.0] * SLOTS, [0.0] * SLOTS)
    found = sample(backend, logits, geometry_of([0], 4, [1] * SLOTS), sampling, choice)
    assert found[:3] == [NO_TOKEN] * 3
    assert found[3] >= 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_draws_are_the_definition_s_at_every_seed_and_position(backend: object) -> None:
    logits = logits_of(8, VOCABULARY, spread=1.0)
    geometry = geometry_of([4, 2, 0, 1], 2, [9, 100_000, 0, 5, 2**31 - 3])
    sampling = sampling_of([0.3, 1.0, 2.0, 1.0, 0.0], [VOCABULARY] * 5, [1.0] * 5, [0.0] * 5)
    expected = expected_tokens(logits, geometry, sampling)
    assert sample(backend, logits, geometry, sampling, RowChoice.DRAWN) == expected
    assert sample(backend, logits, geometry, sampling, RowChoice.TRUNCATED) == expected


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("spread", [0.01, 0.5, 5.0])
def test_truncation_is_the_definition_s(backend: object, spread: float) -> None:
    """Few and many candidates; a row of each kind: k, p, both with min-p, min-p alone, and a greedy one."""
    logits = logits_of(5, VOCABULARY, seed=1, spread=spread)
    geometry = geometry_of([0, 1, 2, 3, 4], 1, [3, 14, 15, 92, 65])
    sampling = sampling_of(
        [1.0, 0.6, 1.3, 0.7, 0.0],
        [20, VOCABULARY, 2, VOCABULARY, 3],
        [1.0, 0.9, 0.8, 1.0, 0.5],
        [0.0, 0.0, 0.05, 0.2, 0.0],
    )
    expected = expected_tokens(logits, geometry, sampling)
    assert sample(backend, logits, geometry, sampling, RowChoice.TRUNCATED) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_with_the_kth_stay(backend: object) -> None:
    """All candidates are equal at a coarse grid, so that every limit falls among ties."""
    logits = (logits_of(10, 300, seed=2) * 2).round() / 2
    geometry = geometry_of([0, 1, 2, 3, 4], 2, [3, 14, 15, 92, 65])
    sampling = sampling_of([4.0] * 5, [7, 1, 299, 300, 40], [1.0, 1.0, 0.9, 0.517, 0.25], [0.0] * 5)
    expected = expected_tokens(logits, geometry, sampling)
    assert sample(backend, logits, geometry, sampling, RowChoice.TRUNCATED) == expected


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("choice", list(RowChoice))
def test_drafts_of_a_trimmed_head_count_the_other_tokens_as_minus_infinity(
    backend: object, choice: RowChoice
) -> None:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randperm(VOCABULARY, generator=generator)[: BLOCK + 70].sort().values.int().to(DEVICE)
    logits = logits_of(3, len(ids), seed=4, spread=1.0)
    logits[2, BLOCK] = math.nan
    geometry = geometry_of([3, 1, 0], 1, [9, 8, 7, 6, 5])
    heat = 0.0 if choice is RowChoice.LARGEST else 0.9
    top_k = 30 if choice is RowChoice.TRUNCATED else VOCABULARY
    sampling = sampling_of([heat] * 5, [top_k] * 5, [1.0] * 5, [0.0] * 5)
    inputs = torch.full((SLOTS, 4), -7, dtype=torch.int32, device=DEVICE)
    scratch = SamplingScratch.make(*logits.shape, choice, DEVICE)
    backend.sample_drafts(logits, geometry, sampling, choice, scratch, ids, inputs, 2)  # type: ignore[attr-defined]
    wide = torch.full((2, VOCABULARY), -math.inf, device=DEVICE)
    wide[:, ids.long()] = logits[:2]
    expected = torch.full((SLOTS, 4), -7, dtype=torch.int32)
    expected[0, 2] = NO_TOKEN
    expected[[3, 1], 2] = torch.tensor(expected_tokens(wide, geometry, sampling), dtype=torch.int32)
    assert torch.equal(inputs.cpu(), expected)


@pytest.mark.parametrize("choice", [RowChoice.DRAWN, RowChoice.TRUNCATED])
def test_a_lead_that_fast_noise_cannot_vouch_for_is_looked_at_again(
    choice: RowChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lead is large enough here, so every row is; of equal scores the lowest id wins as everywhere."""
    monkeypatch.setattr(triton_form, "MARGIN", 1e3)
    logits = logits_of(3, VOCABULARY, seed=6, spread=1.0)
    geometry = geometry_of([4, 2, 1], 1, [9, 100_000, 0, 5, 70])
    top_k = 40 if choice is RowChoice.TRUNCATED else VOCABULARY
    sampling = sampling_of([0.3, 1.0, 2.0, 1.0, 0.5], [top_k] * 5, [1.0] * 5, [0.0] * 5)
    expected = expected_tokens(logits, geometry, sampling)
    assert sample(triton_form, logits, geometry, sampling, choice) == expected
