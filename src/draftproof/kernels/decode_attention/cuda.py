"""Attention of a device step in CUDA, one launch or two: for heads of 256 and GPUs with block clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.launch import Kernel, load_kernel
from draftproof.kernels.cuda.requirements import missing
from draftproof.kernels.decode_attention.parameters import (
    MULTIPROCESSORS,
    AttentionParameters,
    AttentionScratch,
    Past,
)
from draftproof.kernels.step_geometry import StepGeometry

SOURCE = Path(__file__).with_name("decode_attention.cu")
HEAD_DIM = 256
THREADS = 256
STEP = 16
PITCH = HEAD_DIM * 2 + 16
LARGEST_TILE = 64
LARGEST_CLUSTER = 8
LOG2_E = 1.4426950408889634

MOST_RANKS = 256
"""`RANKS` in the source."""

LONGEST_OF_CLUSTERS = 4096
"""Most positions of a sequence for which the largest cluster suffices while most of the GPU is idle."""


@dataclass(frozen=True)
class Plan:
    """Who shares a sequence's context.

    Attributes:
        cluster: blocks of a cluster, which need no second launch; 0 for parts and a merge.
        ranks: blocks that share.
        stages: steps of a team in shared memory.
    """

    cluster: int
    ranks: int
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
    _launch(_Call(projected, parameters, keys, values, geometry, None, scratch, out, past))


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
    _launch(_Call(projected, parameters, keys, values, geometry, row_index, scratch, out, past))


def supports(
    projected: Tensor,
    parameters: AttentionParameters,
    keys: Tensor,
    values: Tensor,
    geometry: StepGeometry,
    *_: object,
    **__: object,
) -> str | None:
    """Why a call with these arguments cannot run here, or should not, or None."""
    if not projected.is_cuda or torch.cuda.get_device_capability(projected.device) < (9, 0):
        return "thread block clusters need compute capability 9.0"
    if reason := missing(projected.device):
        return reason
    if projected.dtype is not torch.bfloat16:
        return f"activations are {projected.dtype}, not bfloat16"
    if parameters.head_dim != HEAD_DIM:
        return f"head_dim is {parameters.head_dim}, not {HEAD_DIM}"
    rotated = parameters.cos.shape[1]
    if rotated & (rotated - 1) or not 16 <= rotated <= HEAD_DIM:
        return f"{rotated} rotated dimensions are no power of two from 16 to {HEAD_DIM}"
    if projected.stride(0) % 8:
        return f"a row stride of {projected.stride(0)} elements is no multiple of 16 bytes"
    if geometry.rows > 8:
        return f"{geometry.rows} rows a sequence are more than 8"
    if geometry.page_size % STEP:
        return f"pages of {geometry.page_size} positions are no multiple of {STEP}"
    return None


def plan_for(batch: int, key_value_heads: int, longest_context: int, tile: int) -> Plan:
    """Clusters that fill half of the GPU: they start while the last blocks in front of them are there.

    For long contexts of few sequences parts, which fill all of it. As was best on an H200.

    Args:
        batch: sequences of the bucket.
        key_value_heads: of the layer.
        longest_context: the most positions that a sequence may have.
        tile: rows of a block's tile.
    """
    wanted = max(1, MULTIPROCESSORS // (batch * key_value_heads))
    stages = 4 if tile > 32 else 3
    if wanted > 2 * LARGEST_CLUSTER and longest_context > LONGEST_OF_CLUSTERS:
        return Plan(0, min(wanted, MOST_RANKS), stages)
    half = max(1, wanted // 2)
    cluster = min(LARGEST_CLUSTER, 1 << (half.bit_length() - 1))
    return Plan(cluster, cluster, stages)


def shared_bytes(tile: int, rows: int, stages: int) -> int:
    """Size of `Shared` in the source."""
    teams = THREADS // 32 // max(2, tile // 16)
    slabs = teams * stages * 2 * STEP * PITCH
    return 2 * teams * tile * 4 + tile * PITCH + 2 * rows * PITCH + slabs


@dataclass(frozen=True)
class _Call:
    projected: Tensor
    parameters: AttentionParameters
    keys: Tensor
    values: Tensor
    geometry: StepGeometry
    row_index: Tensor | None
    scratch: AttentionScratch
    out: Tensor
    past: Past

    @property
    def tile_rows(self) -> int:
        """Rows x heads of the group that one key/value head of a sequence serves."""
        query_rows = self.geometry.rows if self.row_index is None else 1
        return query_rows * self.parameters.heads // self.parameters.key_value_heads

    @property
    def tile(self) -> int:
        """Of them in one block."""
        return next((size for size in (16, 32) if self.tile_rows <= size), LARGEST_TILE)

    @property
    def tiles(self) -> int:
        """Blocks that split them."""
        return -(-self.tile_rows // self.tile)

    def plan(self) -> Plan:
        """For the longest context that the page table has room for."""
        longest = self.geometry.page_table.shape[1] * self.geometry.page_size
        plan = plan_for(self.geometry.batch, self.parameters.key_value_heads, longest, self.tile)
        return plan if plan.cluster else replace(plan, ranks=min(plan.ranks, self.scratch.splits))


def _kernel(name: str, call: _Call, plan: Plan) -> Kernel:
    parameters = call.parameters
    return load_kernel(
        SOURCE,
        name,
        call.projected.device,
        HEADS=parameters.heads,
        KEY_VALUE_HEADS=parameters.key_value_heads,
        GATED=int(parameters.gated),
        ROTATED=parameters.cos.shape[1],
        PAGE_SIZE=call.geometry.page_size,
        ROWS=call.geometry.rows,
        SELECTED=int(call.row_index is not None),
        TILE=call.tile,
        TILES=call.tiles,
        CLUSTER=plan.cluster,
        STAGES=plan.stages,
        SETTLED=int(call.past is Past.SETTLED),
    )


def _launch(call: _Call) -> None:
    parameters, geometry, plan = call.parameters, call.geometry, call.plan()
    _kernel("decode_attention", call, plan).launch(
        (plan.ranks, parameters.key_value_heads * call.tiles, geometry.batch),
        THREADS,
        (
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
            call.row_index,
            call.out,
            call.out.stride(0),
            float(parameters.query_norm.epsilon),
            float(parameters.key_norm.epsilon),
            parameters.head_dim**-0.5 * LOG2_E,
            call.scratch.partial,
            call.scratch.statistics,
        ),
        shared_bytes=shared_bytes(call.tile, geometry.rows, plan.stages),
    )
    if plan.cluster == 0:
        _merge(call, plan)


def _merge(call: _Call, plan: Plan) -> None:
    _kernel("merge_parts", call, plan).launch(
        (call.out.shape[0] * call.parameters.heads,),
        THREADS,
        (
            call.projected,
            call.projected.stride(0),
            call.geometry.slots,
            call.geometry.lengths,
            call.row_index,
            call.out,
            call.out.stride(0),
            call.scratch.partial,
            call.scratch.statistics,
            plan.ranks,
        ),
    )
