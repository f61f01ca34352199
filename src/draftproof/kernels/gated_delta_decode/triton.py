"""The device form as one Triton kernel: any GPU that Triton knows."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.kernels.dependent_launch import has_dependent_launch
from draftproof.kernels.gated_delta_decode.state import Commit, DeviceRecurrentState, ProjectedColumns
from draftproof.kernels.gated_delta_decode.triton_kernels import CONV_KERNEL, run_window
from draftproof.kernels.gated_delta_step.reference import GatedDeltaParameters
from draftproof.kernels.step_geometry import StepGeometry

ELEMENTS_OF_A_WARP = 2048
"""Elements of the state that 32 threads keep in registers, 64 each."""


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
    del columns, parameters, out
    key_dim, value_dim = state.recurrent.shape[2:]
    if key_dim & (key_dim - 1) or value_dim & (value_dim - 1):
        return f"heads of {key_dim} x {value_dim}: both must be powers of two"
    if state.convolution.shape[2] != CONV_KERNEL.value - 1:
        return f"convolution of {state.convolution.shape[2] + 1} taps: it is written for {CONV_KERNEL.value}"
    if commit is Commit.STASH and geometry.rows > state.window_rows:
        return f"windows of {geometry.rows} rows do not fit a stash of {state.window_rows}"
    if projected.dtype is not torch.bfloat16:
        return "rows must be BF16"
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
    slots, value_heads, key_dim, value_dim = state.recurrent.shape
    overlap = has_dependent_launch(projected)
    run_window[(value_heads, geometry.batch)](
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
        ROWS=geometry.rows,
        WINDOW=state.window_rows,
        STASH=commit is Commit.STASH,
        KEY_HEADS=parameters.num_key_heads,
        VALUE_HEADS=value_heads,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        OVERLAP=overlap,
        num_warps=max(1, min(8, key_dim * value_dim // ELEMENTS_OF_A_WARP)),
        launch_pdl=overlap,
    )
