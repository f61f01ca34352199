"""What the experts' kernels take besides activations: the shared expert, and the room that they need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.kernels.packed_weights.formats import PackedExperts, PackedMatrix
from draftproof.kernels.routing.routing import FEW_ROWS, FewRowsRouting, Routing

ACTIVATION_MULTIPLE = 256
"""Widths of scratch are padded to this: whole chunks and tiles of every format."""


@dataclass(frozen=True)
class SharedExpert:
    """The expert that every row has; its format may differ from the routed experts'.

    Attributes:
        gate_up: paired, [2 * intermediate, hidden].
        down: [hidden, intermediate].
    """

    gate_up: PackedMatrix
    down: PackedMatrix

    @property
    def intermediate(self) -> int:
        """Real width between the two matrices."""
        return self.down.columns


def as_experts(shared: SharedExpert) -> PackedExperts:
    """The shared expert as one routed expert."""

    def one(part: Tensor | None) -> Tensor | None:
        return None if part is None else part.unsqueeze(0)

    first, second = shared.gate_up, shared.down
    return PackedExperts(
        first.format,
        hidden=first.columns,
        intermediate=second.columns,
        gate_up=first.blocks.unsqueeze(0),
        down=second.blocks.unsqueeze(0),
        gate_up_scale=one(first.row_scale),
        down_scale=one(second.row_scale),
        gate_up_block_scale=one(first.block_scale),
        down_block_scale=one(second.block_scale),
    )


@dataclass(frozen=True)
class ExpertsScratch:
    """Room for the experts of one layer at a time; layers that run one after the other share it.

    Attributes:
        prepared: [rows, padded hidden] bfloat16.
        factor: [rows] float32.
        activations: [pairs, padded intermediate] bfloat16. For `FewRowsRouting` pair `FEW_ROWS * i + r` is
            row r of the i-th distinct expert.
        shared_activations: [rows, padded intermediate of the shared expert] bfloat16.
        outputs: [pairs, hidden] float32.
        shared_outputs: [rows, hidden] float32.
        exchange: [(listed experts + 1) * FEW_ROWS, padded intermediate] int32, on its way between the blocks
            of one launch for few rows.
        launches: [1] int32, number of the last such launch.
    """

    prepared: Tensor
    factor: Tensor
    activations: Tensor
    shared_activations: Tensor
    outputs: Tensor
    shared_outputs: Tensor
    exchange: Tensor
    launches: Tensor


def experts_scratch(
    rows: int, routing: Routing, experts: PackedExperts, shared: SharedExpert | None
) -> ExpertsScratch:
    """Scratch for steps of `rows` rows, on the device of the experts.

    Args:
        rows: of a step.
        routing: `allocate_routing` of as many rows.
        experts: of any layer; all layers that share the scratch have these widths.
        shared: of the same layer.
    """
    few = isinstance(routing, FewRowsRouting)
    pairs = FEW_ROWS * len(routing.row_weights) if few else len(routing.pair_rows)  # type: ignore[union-attr]
    shared_rows = 0 if shared is None else rows
    shared_width = 0 if shared is None else shared.intermediate

    def room(count: int, width: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.zeros(count, width, dtype=dtype, device=experts.gate_up.device)

    return ExpertsScratch(
        prepared=room(rows, _padded(experts.hidden)),
        factor=room(1, rows, torch.float32)[0],
        activations=room(pairs, _padded(experts.intermediate)),
        shared_activations=room(shared_rows, _padded(shared_width)),
        outputs=room(pairs, experts.hidden, torch.float32),
        shared_outputs=room(shared_rows, experts.hidden, torch.float32),
        exchange=room(pairs + FEW_ROWS if few else 0, _padded(experts.intermediate), torch.int32),
        launches=room(1, 1, torch.int32)[0],
    )


def _padded(width: int) -> int:
    return -(-width // ACTIVATION_MULTIPLE) * ACTIVATION_MULTIPLE
