"""The outcome of routing a step's rows, on the device, and the room that routing needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec

FEW_ROWS = 8
"""Up to this many rows every distinct expert runs on all rows, weight 0 where a row did not choose it."""

BLOCK_PAIRS = 16
"""Most pairs of one block of `ManyRowsRouting.blocks`."""


@dataclass(frozen=True)
class FewRowsRouting:
    """For at most `FEW_ROWS` rows.

    Attributes:
        distinct: [1 + experts listed] int32: how many distinct experts, then their ids, ascending; behind
            them 0.
        row_weights: [experts listed, FEW_ROWS] float32 in the order of `distinct`; 0 where a row did not
            choose the expert, and behind the last one. The room is min(experts, rows * experts per token).
        shared_weight: [FEW_ROWS] float32, sigmoid of the shared expert's gate, 0 behind the last row; unused
            without a shared expert.
    """

    distinct: Tensor
    row_weights: Tensor
    shared_weight: Tensor


@dataclass(frozen=True)
class ManyRowsRouting:
    """For more rows: (row, expert) pairs sorted by expert, then by row.

    Attributes:
        offsets: [experts + 1] int32, where each expert's pairs begin.
        pair_rows: [rows * experts per token] int32, row of each pair.
        pair_weights: the same shape, float32.
        pair_places: [rows, experts per token] int32, where each row's pairs went, best expert first.
        blocks: [1 + room] int32: how many blocks, then for each block expert * 65536 + number of the block
            among the expert's; an expert with n pairs has ceil(n / BLOCK_PAIRS) blocks; behind them 0.
        shared_weight: [rows] float32, sigmoid of the shared expert's gate; unused without a shared expert.
    """

    offsets: Tensor
    pair_rows: Tensor
    pair_weights: Tensor
    pair_places: Tensor
    blocks: Tensor
    shared_weight: Tensor


Routing = FewRowsRouting | ManyRowsRouting


@dataclass(frozen=True)
class RoutingScratch:
    """What routing needs besides its outcome.

    Attributes:
        logits: [rows, router's padded rows] float32: of the experts, then of the shared expert's gate.
        chosen: [rows, experts per token] int32, best first.
        weights: the same shape, float32.
        logit_words: shape of `logits`, int64: logits on their way through one launch, with its number.
        choice_words: shape of `chosen`, int64: likewise choices.
        launches: [4] int32, first how many launches there have been.
    """

    logits: Tensor
    chosen: Tensor
    weights: Tensor
    logit_words: Tensor
    choice_words: Tensor
    launches: Tensor


def allocate_routing(rows: int, spec: MoeSpec, device: torch.device) -> Routing:
    """Room for the outcome for `rows` rows: `FewRowsRouting` up to `FEW_ROWS`, else `ManyRowsRouting`."""

    if rows > FEW_ROWS:
        return allocate_many_rows(rows, spec, device)
    listed = min(spec.num_experts, rows * spec.experts_per_token)
    distinct, weights = _integers(device, 1 + listed), _numbers(device, listed, FEW_ROWS)
    return FewRowsRouting(distinct, weights, _numbers(device, FEW_ROWS))


def allocate_many_rows(rows: int, spec: MoeSpec, device: torch.device) -> ManyRowsRouting:
    """Room for the outcome for any number of rows as sorted pairs."""
    pairs = rows * spec.experts_per_token
    return ManyRowsRouting(
        offsets=_integers(device, spec.num_experts + 1),
        pair_rows=_integers(device, pairs),
        pair_weights=_numbers(device, pairs),
        pair_places=_integers(device, rows, spec.experts_per_token),
        blocks=_integers(device, 1 + most_blocks(rows, spec)),
        shared_weight=_numbers(device, rows),
    )


def most_blocks(rows: int, spec: MoeSpec) -> int:
    """Most blocks of `BLOCK_PAIRS` pairs that any choice of the rows can lead to."""
    pairs = rows * spec.experts_per_token
    partial = min(spec.num_experts, pairs)
    return partial + (pairs - partial) // BLOCK_PAIRS


def routing_scratch(rows: int, spec: MoeSpec, router_rows: int, device: torch.device) -> RoutingScratch:
    """Scratch for `rows` rows; it may be shared by layers that run one after the other.

    Args:
        rows: of a step.
        spec: of the layers.
        router_rows: the router's rows, padded to whole tiles.
        device: where the step runs.
    """
    wide, narrow = (rows, router_rows), (rows, spec.experts_per_token)
    return RoutingScratch(
        logits=_numbers(device, *wide),
        chosen=_integers(device, *narrow),
        weights=_numbers(device, *narrow),
        logit_words=torch.zeros(wide, dtype=torch.int64, device=device),
        choice_words=torch.zeros(narrow, dtype=torch.int64, device=device),
        launches=_integers(device, 4),
    )


def _integers(device: torch.device, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int32, device=device)


def _numbers(device: torch.device, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float32, device=device)
