"""Attention of a device step in one CUDA launch, for heads of 256 and GPUs with thread block clusters."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.compiler import is_available
from draftproof.kernels.cuda.launch import load_kernel
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
BLOCK = 64
PITCH = HEAD_DIM * 2 + 16
WEIGHT_PITCH = BLOCK * 2 + 16
LARGEST_TILE = 64
LARGEST_CLUSTER = 8
LOG2_E = 1.4426950408889634

LONGEST_SHARE = 1024
"""Positions that a block handles while most of the GPU is idle, before a grid without clusters is faster."""


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
    _launch(projected, parameters, keys, values, geometry, None, out, past)


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
    _launch(projected, parameters, keys, values, geometry, row_index, out, past)


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
    if not is_available():
        return "cuda-bindings or NVRTC is missing"
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
    longest = geometry.page_table.shape[1] * geometry.page_size
    cluster = cluster_for(geometry.batch, parameters.key_value_heads)
    programs = geometry.batch * parameters.key_value_heads * cluster
    if 2 * programs < MULTIPROCESSORS and longest > LONGEST_SHARE * cluster:
        return f"contexts of up to {longest} positions need more programs than a cluster has"
    return None


def cluster_for(batch: int, key_value_heads: int) -> int:
    """Blocks that share a sequence's context: a power of two that occupies the GPU once."""
    wanted = max(1, MULTIPROCESSORS // (batch * key_value_heads))
    return min(LARGEST_CLUSTER, 1 << (wanted.bit_length() - 1))


def stages_for(tile: int, cluster: int) -> int:
    """Blocks of positions in flight: as many as shared memory holds where one block reads long contexts."""
    return 3 if tile <= 32 and cluster <= 2 else 2


def _shared_bytes(tile: int, rows: int, stages: int) -> int:
    """Size of `Shared` in the source."""
    statistics = 64 + 2 * tile * 4 + THREADS // 32 * tile * 4
    return statistics + tile * (PITCH + WEIGHT_PITCH) + 2 * rows * PITCH + 2 * stages * BLOCK * PITCH


def _launch(
    projected: Tensor,
    parameters: AttentionParameters,
    keys: Tensor,
    values: Tensor,
    geometry: StepGeometry,
    row_index: Tensor | None,
    out: Tensor,
    past: Past,
) -> None:
    query_rows = geometry.rows if row_index is None else 1
    needed = query_rows * parameters.heads // parameters.key_value_heads
    tile = next((size for size in (16, 32) if needed <= size), LARGEST_TILE)
    tiles = -(-needed // tile)
    cluster = cluster_for(geometry.batch, parameters.key_value_heads)
    stages = stages_for(tile, cluster)
    kernel = load_kernel(
        SOURCE,
        "decode_attention",
        projected.device,
        HEADS=parameters.heads,
        KEY_VALUE_HEADS=parameters.key_value_heads,
        GATED=int(parameters.gated),
        ROTATED=parameters.cos.shape[1],
        PAGE_SIZE=geometry.page_size,
        ROWS=geometry.rows,
        SELECTED=int(row_index is not None),
        TILE=tile,
        TILES=tiles,
        CLUSTER=cluster,
        STAGES=stages,
        SETTLED=int(past is Past.SETTLED),
    )
    kernel.launch(
        (cluster, parameters.key_value_heads * tiles, geometry.batch),
        THREADS,
        (
            projected,
            projected.stride(0),
            parameters.query_norm.weight,
            parameters.key_norm.weight,
            parameters.cos,
            parameters.sin,
            parameters.cos.shape[0],
            keys,
            values,
            geometry.slots,
            geometry.lengths,
            geometry.page_table,
            geometry.page_table.shape[1],
            row_index,
            out,
            out.stride(0),
            float(parameters.query_norm.epsilon),
            float(parameters.key_norm.epsilon),
            parameters.head_dim**-0.5 * LOG2_E,
        ),
        shared_bytes=_shared_bytes(tile, geometry.rows, stages),
    )
