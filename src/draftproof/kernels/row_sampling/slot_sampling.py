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


BLOCK = 2048
"""Columns of logits that one program looks at."""

LARGE_BLOCK = 4096
"""The same where it only looks for the largest."""

STEPS = 16
"""Depths that one search for a cut tries at once."""


@dataclass(frozen=True)
class SamplingScratch:
    """Room for partial results of a launch; one may serve all launches of a stream.

    Attributes:
        partial: [3, rows * blocks] float32: largest logits, best and second-best scores of a row's blocks.
        places: [rows * blocks] int32, the columns of the best scores.
        arrivals: [rows + 1] int32, zero between launches: programs that have left their partial result.
        cuts: room for rows that are cut; of no rows where none are.
    """

    partial: Tensor
    places: Tensor
    arrivals: Tensor
    cuts: CutScratch

    @staticmethod
    def make(rows: int, columns: int, choice: RowChoice, device: torch.device) -> SamplingScratch:
        """Room for `rows` rows of `columns` logits."""
        places = rows * -(-columns // BLOCK)
        return SamplingScratch(
            partial=torch.zeros((3, places), device=device),
            places=torch.zeros(places, dtype=torch.int32, device=device),
            arrivals=torch.zeros(rows + 1, dtype=torch.int32, device=device),
            cuts=CutScratch.make(rows if choice is RowChoice.TRUNCATED else 0, columns, device),
        )


@dataclass(frozen=True)
class CutScratch:
    """Room for finding where rows are cut.

    Attributes:
        counts: [rows * blocks, STEPS] int32, candidates of a block down to each depth.
        masses: the same, float64, their probabilities, unnormalised.
        offsets: [rows * blocks] int32, where a block's part of its row's list begins.
        ranges: [rows, 4] int32, the depths between which the cut lies, and the length of the list.
        shares: [rows, 2] float64, the row's whole probability, and that above the range.
        listed: [rows, columns] int32, depths in the range.
        limits: [rows] int32, the cuts.
    """

    counts: Tensor
    masses: Tensor
    offsets: Tensor
    ranges: Tensor
    shares: Tensor
    listed: Tensor
    limits: Tensor

    @staticmethod
    def make(rows: int, columns: int, device: torch.device) -> CutScratch:
        """Room for `rows` rows of `columns` logits."""
        places = rows * -(-columns // BLOCK)

        def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return CutScratch(
            counts=zeros(torch.int32, places, STEPS),
            masses=zeros(torch.float64, places, STEPS),
            offsets=zeros(torch.int32, places),
            ranges=zeros(torch.int32, rows, 4),
            shares=zeros(torch.float64, rows, 2),
            listed=zeros(torch.int32, rows, columns),
            limits=zeros(torch.int32, max(rows, 1)),
        )
