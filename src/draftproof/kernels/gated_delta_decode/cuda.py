"""The device form as one CUDA kernel: SM90 and newer, heads of 128, four convolution taps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.launch import Kernel, load_kernel
from draftproof.kernels.gated_delta_decode.state import Commit, DeviceRecurrentState, ProjectedColumns
from draftproof.kernels.gated_delta_step.reference import GatedDeltaParameters
from draftproof.kernels.step_geometry import StepGeometry

SOURCE = Path(__file__).parent / "gated_delta_decode.cu"

HEAD_DIM = 128
CONV_KERNEL = 4
MOST_ROWS = 8
MULTIPROCESSORS = 132


@dataclass(frozen=True)
class LaunchShape:
    """How a value head is spread over threads; see the kernel's head.

    Attributes:
        split: blocks of a cluster that share a head.
        slices: lanes that share a value column.
        columns: neighbouring value columns of a thread, 2 or 4.
        blocks: resident blocks of a multiprocessor that the registers must allow.
    """

    split: int
    slices: int
    columns: int
    blocks: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return HEAD_DIM // self.split // self.columns * self.slices


FEW_HEADS = LaunchShape(split=4, slices=8, columns=2, blocks=2)
SOME_HEADS = LaunchShape(split=2, slices=8, columns=2, blocks=2)
MANY_HEADS = LaunchShape(split=1, slices=8, columns=4, blocks=2)
SHAPES = (FEW_HEADS, SOME_HEADS, MANY_HEADS)


def launch_shape(heads: int) -> LaunchShape:
    """The shape for a launch over `heads` value heads of all sequences together."""
    if heads * 2 <= MULTIPROCESSORS:
        return FEW_HEADS
    if heads <= 2 * MULTIPROCESSORS:
        return SOME_HEADS
    return MANY_HEADS


def supports(
    projected: Tensor,
    columns: ProjectedColumns,
    parameters: GatedDeltaParameters,
    state: DeviceRecurrentState,
    geometry: StepGeometry,
    commit: Commit,
    out: Tensor,
) -> str | None:
    """Why this backend cannot carry out the call; None when it can."""
    del out
    key_dim, value_dim = state.recurrent.shape[2:]
    if (key_dim, value_dim) != (HEAD_DIM, HEAD_DIM):
        return f"heads of {key_dim} x {value_dim}: it is written for {HEAD_DIM} x {HEAD_DIM}"
    if state.convolution.shape[2] != CONV_KERNEL - 1:
        return f"convolution of {state.convolution.shape[2] + 1} taps: it is written for {CONV_KERNEL}"
    if not 1 <= geometry.rows <= MOST_ROWS:
        return f"windows of {geometry.rows} rows: at most {MOST_ROWS}"
    if commit is Commit.STASH and geometry.rows > state.window_rows:
        return f"windows of {geometry.rows} rows do not fit a stash of {state.window_rows}"
    if projected.dtype is not torch.bfloat16 or state.convolution.dtype is not torch.bfloat16:
        return "rows and convolution inputs must be BF16"
    if parameters.convolution.dtype is not torch.float32:
        return "convolution weights must be float32"
    if projected.stride(0) % 4 or columns.inputs % 4 or columns.gate % 4:
        return "projected rows and their parts must begin at multiples of 4"
    return None


def gated_delta_decode(
    projected: Tensor,
    columns: ProjectedColumns,
    parameters: GatedDeltaParameters,
    state: DeviceRecurrentState,
    geometry: StepGeometry,
    commit: Commit,
    out: Tensor,
) -> None:
    """See the reference. `out` is contiguous."""
    shape = launch_shape(geometry.batch * state.recurrent.shape[1])
    run(shape, projected, columns, parameters, state, geometry, commit, out)


def kernel_for(
    shape: LaunchShape,
    parameters: GatedDeltaParameters,
    state: DeviceRecurrentState,
    rows: int,
    commit: Commit,
) -> Kernel:
    """The compiled kernel of one launch shape."""
    return load_kernel(
        SOURCE,
        "gated_delta_decode",
        state.recurrent.device,
        KEY_HEADS=parameters.num_key_heads,
        VALUE_HEADS=state.recurrent.shape[1],
        ROWS=rows,
        WINDOW=state.window_rows,
        STASH=int(commit is Commit.STASH),
        SPLIT=shape.split,
        SLICES=shape.slices,
        VEC=shape.columns,
        BLOCKS=shape.blocks,
    )


def run(
    shape: LaunchShape,
    projected: Tensor,
    columns: ProjectedColumns,
    parameters: GatedDeltaParameters,
    state: DeviceRecurrentState,
    geometry: StepGeometry,
    commit: Commit,
    out: Tensor,
) -> None:
    """`gated_delta_decode` with a launch shape of one's own."""
    slots, value_heads = state.recurrent.shape[:2]
    kernel = kernel_for(shape, parameters, state, geometry.rows, commit)
    arguments = (
        projected,
        projected.stride(0),
        columns.inputs,
        columns.gate,
        columns.a,
        columns.b,
        parameters.convolution,
        parameters.negative_a,
        parameters.dt_bias,
        parameters.norm,
        parameters.norm_epsilon,
        state.recurrent,
        state.convolution,
        state.stash_inputs,
        state.stash_log_decay,
        state.stash_beta,
        geometry.slots,
        geometry.pending,
        geometry.parity,
        slots,
        out,
    )
    kernel.launch((value_heads * shape.split, geometry.batch), shape.threads, arguments)
