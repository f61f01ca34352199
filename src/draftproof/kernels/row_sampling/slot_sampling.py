"""The numbers that rows are sampled by, as tensors per slot."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

NO_TOKEN = -1
"""In place of a token where the logits leave none to choose."""


class RowChoice(Enum):
    """What a recorded graph must be able to do for its rows; each serves rows of the ones before it."""

    LARGEST = "largest"
    """Every row takes its largest logit."""
    DRAWN = "drawn"
    """Rows with a temperature draw from the whole vocabulary."""
    TRUNCATED = "truncated"
    """Rows may cut the vocabulary by top-k, top-p and min-p."""


@dataclass(frozen=True)
class SlotSampling:
    """How each slot's rows are sampled.

    Attributes:
        temperature: [slots] float32; 0 takes the largest logit.
        seeds: [slots] int64, key of the noise.
        top_k: [slots] int32, at least 1; the vocabulary's size or more keeps all.
        top_p: [slots] float64, in (0, 1]; 1 keeps all.
        min_p: [slots] float64, in [0, 1]; 0 keeps all.
    """

    temperature: Tensor
    seeds: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor

    @staticmethod
    def greedy(slots: int, device: torch.device) -> SlotSampling:
        """Every slot takes its largest logits."""
        return SlotSampling(
            temperature=torch.zeros(slots, device=device),
            seeds=torch.zeros(slots, dtype=torch.int64, device=device),
            top_k=torch.full((slots,), torch.iinfo(torch.int32).max, dtype=torch.int32, device=device),
            top_p=torch.ones(slots, dtype=torch.float64, device=device),
            min_p=torch.zeros(slots, dtype=torch.float64, device=device),
        )


BLOCK = 4096
"""Columns of logits that one program looks at."""

COARSE = 32
"""Thresholds that the first look at a truncated row tries."""


@dataclass(frozen=True)
class SamplingScratch:
    """Room for partial results of a launch; one may serve all launches of a stream.

    Attributes:
        numbers: [rows, blocks] float32, a block's largest logit or best score.
        places: [rows, blocks] int32, the column it stands in.
        counts: [rows, blocks, COARSE] int32, candidates at each coarse threshold.
        masses: [rows, blocks, COARSE] float64, their probabilities, unnormalised.
        values: [rows, columns] float32, candidates of truncated rows.
        columns: [rows, columns] int32, where they stand.
        arrivals: [rows + 1] int32, zero between launches: programs that have left their partial result.
    """

    numbers: Tensor
    places: Tensor
    counts: Tensor
    masses: Tensor
    values: Tensor
    columns: Tensor
    arrivals: Tensor

    @staticmethod
    def make(rows: int, columns: int, choice: RowChoice, device: torch.device) -> SamplingScratch:
        """Room for `rows` rows of `columns` logits; what only truncation needs is left out without it."""
        blocks = -(-columns // BLOCK)
        truncated = rows if choice is RowChoice.TRUNCATED else 0
        return SamplingScratch(
            numbers=torch.zeros((2, rows, blocks), device=device),
            places=torch.zeros((2, rows, blocks), dtype=torch.int32, device=device),
            counts=torch.zeros((truncated, blocks, COARSE), dtype=torch.int32, device=device),
            masses=torch.zeros((truncated, blocks, COARSE), dtype=torch.float64, device=device),
            values=torch.zeros((truncated, columns), device=device),
            columns=torch.zeros((truncated, columns), dtype=torch.int32, device=device),
            arrivals=torch.zeros(rows + 1, dtype=torch.int32, device=device),
        )
