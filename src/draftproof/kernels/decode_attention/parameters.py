"""What the attention kernels of a device step read that does not change from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from draftproof.kernels.norm.scale import NormScale

SMALLEST_SHARE = 64
"""Positions that one program reads at least, where a context has that many."""

MULTIPROCESSORS = 132
"""Programs that should be at work at least; of an H200, and no worse than others for smaller GPUs."""


class Past(Enum):
    """What a launch may assume of the lengths, page table, and committed keys and values that it reads."""

    SETTLED = "settled"
    """Written before the step began: they may be read while the kernels in front still run."""
    MOVING = "moving"
    """Written by kernels of the same step."""


@dataclass(frozen=True)
class AttentionParameters:
    """One layer.

    A projected row holds [query (and its gate behind it, head by head), keys, values].

    Attributes:
        heads: query heads.
        key_value_heads: key/value heads; divides `heads`.
        head_dim: width of a head.
        gated: whether each query head is followed by its output gate.
        query_norm: over head_dim.
        key_norm: over head_dim.
        cos: [positions, rotated width] float32, both halves alike.
        sin: as `cos`; the leading half is negative.
    """

    heads: int
    key_value_heads: int
    head_dim: int
    gated: bool
    query_norm: NormScale
    key_norm: NormScale
    cos: Tensor
    sin: Tensor

    @property
    def query_width(self) -> int:
        """Columns of a projected row in front of the keys."""
        return self.heads * self.head_dim * (2 if self.gated else 1)

    @property
    def key_width(self) -> int:
        """Columns of the keys, and of the values."""
        return self.key_value_heads * self.head_dim


@dataclass(frozen=True)
class AttentionScratch:
    """Room for what programs that share a sequence leave for the merge; layers may share one.

    Attributes:
        partial: [splits, rows, heads, head_dim] float32, sums of values before division.
        statistics: [2, splits, rows, heads] float32, largest score and sum of weights.
    """

    partial: Tensor
    statistics: Tensor

    @property
    def splits(self) -> int:
        """Programs that share the context of a sequence and key/value head."""
        return self.partial.shape[0]


def choose_splits(batch: int, key_value_heads: int, longest_context: int) -> int:
    """How many programs share a sequence's context: enough to occupy the GPU, none for no reason.

    The last of several handles the window's own rows and no older ones.

    Args:
        batch: sequences of the bucket.
        key_value_heads: of the layer.
        longest_context: the most positions that a sequence may have.
    """
    pairs = batch * key_value_heads
    # Two programs for each multiprocessor hide each other's waits; one alone is better than three that share.
    wanted = min(2 * MULTIPROCESSORS // pairs, MULTIPROCESSORS // key_value_heads)
    useful = -(-longest_context // SMALLEST_SHARE)
    older = min(wanted, useful)
    return older + 1 if older > 3 else 1


def make_scratch(
    parameters: AttentionParameters, batch: int, rows: int, longest_context: int
) -> AttentionScratch:
    """Scratch for windows of `rows` rows of `batch` sequences, on the device of the parameters."""
    splits = choose_splits(batch, parameters.key_value_heads, longest_context)
    shape = (splits, batch * rows, parameters.heads)
    device = parameters.cos.device
    return AttentionScratch(
        partial=torch.empty(*shape, parameters.head_dim, device=device),
        statistics=torch.empty(2, *shape, device=device),
    )
