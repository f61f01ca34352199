"""Attention of a device step in two Triton launches: programs share each sequence's context, then a merge.

A program serves one key/value head of one sequence and one share of its positions, for all its query heads
and all rows at once: one tile for the matrix units. The last program of a sequence makes the keys and values
of the window, stores them, and attends to them from registers: nobody waits for another program's writes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.kernels.decode_attention.parameters import (
    SMALLEST_SHARE,
    AttentionParameters,
    AttentionScratch,
    Past,
)
from draftproof.kernels.decode_attention.triton_kernels import attend_share, merge_shares
from draftproof.kernels.dependent_launch import has_dependent_launch
from draftproof.kernels.step_geometry import StepGeometry

LARGEST_TILE = 64
"""Rows x heads of the group in one program; more take further programs."""

SMALLEST_TILE = 16
"""The matrix units' smallest left operand."""

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Tiling:
    """How a program of `attend_share` works.

    Attributes:
        block: positions at a time.
        warps: of the program.
        stages: blocks in flight.
    """

    block: int
    warps: int
    stages: int


def decode_attention(
    projected: Tensor,
    parameters: AttentionParameters,
    keys: Tensor,
    values: Tensor,
    geometry: StepGeometry,
    scratch: AttentionScratch,
    *,
    out: Tensor,
    past: Past = Past.MOVING,
) -> None:
    """As `reference.decode_attention`; BF16. Outputs of rows past the page table mean nothing."""
    _launch(_Call(projected, parameters, keys, values, geometry, scratch, out, past, None))


def decode_attention_selected(
    projected: Tensor,
    parameters: AttentionParameters,
    keys: Tensor,
    values: Tensor,
    geometry: StepGeometry,
    row_index: Tensor,
    scratch: AttentionScratch,
    *,
    out: Tensor,
    past: Past = Past.MOVING,
) -> None:
    """As `reference.decode_attention_selected`; BF16."""
    _launch(_Call(projected, parameters, keys, values, geometry, scratch, out, past, row_index))


def supports(projected: Tensor, parameters: AttentionParameters, *_: object, **__: object) -> str | None:
    """Why a call with these arguments cannot run here, or None."""
    if projected.dtype is not torch.bfloat16:
        return f"activations are {projected.dtype}, not bfloat16"
    width = parameters.head_dim
    if width & (width - 1) or not 16 <= width <= 256:
        return f"head_dim {width} is not a power of two from 16 to 256"
    if parameters.cos.shape[1] > width:
        return f"{parameters.cos.shape[1]} rotated dimensions of {width}"
    return None


@dataclass(frozen=True)
class _Call:
    projected: Tensor
    parameters: AttentionParameters
    keys: Tensor
    values: Tensor
    geometry: StepGeometry
    scratch: AttentionScratch
    out: Tensor
    past: Past
    row_index: Tensor | None

    @property
    def query_rows(self) -> int:
        """Rows of a sequence that attend."""
        return self.geometry.rows if self.row_index is None else 1

    @property
    def selected(self) -> Tensor:
        """The chosen rows; anything where all attend."""
        return self.geometry.slots if self.row_index is None else self.row_index

    @property
    def dependent(self) -> bool:
        """Whether a kernel may start before the one in front of it ends, and wait for it inside."""
        return has_dependent_launch(self.out)

    @property
    def group_room(self) -> int:
        """Rows of the tile for the heads of one window row."""
        return _power_of_two(self.parameters.heads // self.parameters.key_value_heads)

    @property
    def tile(self) -> int:
        """Rows of a program's tile."""
        wanted = _power_of_two(self.query_rows) * self.group_room
        return min(max(wanted, SMALLEST_TILE), LARGEST_TILE)

    @property
    def tiles(self) -> int:
        """Programs that split the rows of one window."""
        return -(-self.query_rows * self.group_room // self.tile)


def _power_of_two(count: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << (count - 1).bit_length()


def tiling_for(tile: int, batch: int) -> Tiling:
    """Settings for a tile of so many rows; measured on an H200."""
    if tile > 32 or batch == 1 or batch >= 32:
        return Tiling(block=64, warps=8, stages=2)
    return Tiling(block=32, warps=4, stages=3)


def _launch(call: _Call) -> None:
    parameters, geometry, scratch = call.parameters, call.geometry, call.scratch
    splits, tiling, dependent = scratch.splits, tiling_for(call.tile, geometry.batch), call.dependent
    attend_share[(splits, parameters.key_value_heads * call.tiles, geometry.batch)](
        call.projected,
        call.projected.stride(0),
        parameters.query_norm.weight,
        parameters.key_norm.weight,
        parameters.cos,
        parameters.sin,
        parameters.cos.shape[0],
        call.keys,
        call.values,
        geometry.slots,
        geometry.lengths,
        geometry.page_table,
        geometry.page_table.shape[1],
        call.selected,
        scratch.partial,
        scratch.statistics,
        call.out,
        call.out.stride(0),
        parameters.query_norm.epsilon,
        parameters.key_norm.epsilon,
        parameters.head_dim**-0.5 * LOG2_E,
        splits,
        HEADS=parameters.heads,
        KEY_VALUE_HEADS=parameters.key_value_heads,
        HEAD_DIM=parameters.head_dim,
        ROTATED=parameters.cos.shape[1],
        GATED=parameters.gated,
        PAGE_SIZE=geometry.page_size,
        ROWS=geometry.rows,
        SELECTED=call.row_index is not None,
        GROUP_ROOM=call.group_room,
        TILE=call.tile,
        TILES=call.tiles,
        SHARED=splits > 1,
        SHARE=SMALLEST_SHARE,
        BLOCK=tiling.block,
        STAGES=tiling.stages,
        EARLY=call.past is Past.SETTLED,
        DEPENDENT=dependent,
        num_warps=tiling.warps,
        **_launch_options(dependent),
    )
    if splits > 1:
        _merge(call)


def _merge(call: _Call) -> None:
    parameters, geometry, scratch = call.parameters, call.geometry, call.scratch
    merge_shares[(geometry.batch * call.query_rows, parameters.heads)](
        call.projected,
        call.projected.stride(0),
        geometry.slots,
        geometry.lengths,
        call.selected,
        scratch.partial,
        scratch.statistics,
        call.out,
        call.out.stride(0),
        scratch.splits,
        HEADS=parameters.heads,
        HEAD_DIM=parameters.head_dim,
        GATED=parameters.gated,
        ROWS=geometry.rows,
        SELECTED=call.row_index is not None,
        SHARE=SMALLEST_SHARE,
        CHUNK=16,
        DEPENDENT=call.dependent,
        num_warps=4,
        **_launch_options(call.dependent),
    )


def _launch_options(dependent: bool) -> dict[str, bool]:
    """The interpreter and older GPUs know none."""
    return {"launch_pdl": True} if dependent else {}
