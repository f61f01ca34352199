"""The device form as one CUDA kernel: SM90 and newer, heads of 128, four convolution taps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from draftproof.kernels.cuda.launch import Kernel, load_kernel
from draftproof.kernels.cuda.requirements import missing
from draftproof.kernels.gated_delta_decode.state import Commit, DeviceRecurrentState, ProjectedColumns
from draftproof.kernels.gated_delta_step.reference import GatedDeltaParameters
from draftproof.kernels.step_geometry import StepGeometry

FOLDER = Path(__file__).parent

HEAD_DIM = 128
CONV_KERNEL = 4
MOST_ROWS = 8
MULTIPROCESSORS = 132


@dataclass(frozen=True)
class RegisterShape:
    """The form that keeps the state in registers, and how a value head is spread over threads.

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
    function: str = "gated_delta_decode"

    @property
    def threads(self) -> int:
        """Of a block."""
        return HEAD_DIM // self.split // self.columns * self.slices

    @property
    def definitions(self) -> dict[str, int]:
        """Macros of the source."""
        return {
            "SPLIT": self.split,
            "SLICES": self.slices,
            "VEC": self.columns,
            "BLOCKS": self.blocks,
        }

    def shared_bytes(self, rows: int, window: int) -> int:
        """Dynamic shared memory: none."""
        del rows, window
        return 0


@dataclass(frozen=True)
class BatchShape:
    """The form that keeps the state in shared memory and multiplies by tensor cores.

    Attributes:
        blocks: resident blocks of a multiprocessor.
    """

    blocks: int
    function: str = "gated_delta_decode_batch"
    threads: int = 256
    split: int = 1

    @property
    def definitions(self) -> dict[str, int]:
        """Macros of the source."""
        return {"BLOCKS": self.blocks}

    def shared_bytes(self, rows: int, window: int) -> int:
        """Dynamic shared memory, `Shared` of the source."""
        room = max(window, 1)
        vectors = 8 * -(-rows // 4) + window
        state = HEAD_DIM * HEAD_DIM + 32
        floats = state + HEAD_DIM * (vectors + rows + room) + vectors * (rows + window)
        floats += 2 * (rows + room) + 8 * rows
        return -(-(floats * 4 + 16) // 16) * 16


LaunchShape = RegisterShape | BatchShape

# Few heads with few registers: the projection before them leaves about half of a multiprocessor's, and blocks
# that find room start their own loads while it still runs.
FEWEST_HEADS = RegisterShape(split=4, slices=8, columns=2, blocks=5)
FEW_HEADS = RegisterShape(split=2, slices=8, columns=4, blocks=4)
ONE_ROW_OF_FEW_HEADS = RegisterShape(split=4, slices=4, columns=2, blocks=5)
FEW_HEADS_OF_MANY_ROWS = RegisterShape(split=2, slices=8, columns=2, blocks=2)
SOME_HEADS_OF_MANY_ROWS = RegisterShape(split=1, slices=8, columns=4, blocks=2)
ONE_ROW_OF_SOME_HEADS = RegisterShape(split=2, slices=4, columns=4, blocks=4)
ONE_ROW = RegisterShape(split=1, slices=4, columns=4, blocks=2)
MANY_HEADS = BatchShape(blocks=3)
MANY_HEADS_OF_MANY_ROWS = BatchShape(blocks=2)
SHAPES: tuple[LaunchShape, ...] = (
    FEWEST_HEADS,
    FEW_HEADS,
    ONE_ROW_OF_FEW_HEADS,
    FEW_HEADS_OF_MANY_ROWS,
    SOME_HEADS_OF_MANY_ROWS,
    ONE_ROW_OF_SOME_HEADS,
    ONE_ROW,
    MANY_HEADS,
    MANY_HEADS_OF_MANY_ROWS,
)

MANY_ROWS = 4
"""Windows of more rows need more registers and more shared memory."""


def launch_shape(heads: int, rows: int) -> LaunchShape:
    """The shape for windows of `rows` rows of all sequences' value heads, `heads` together; measured on an
    H200 inside of steps."""
    if heads < MULTIPROCESSORS - 8:
        return _shape_of_few_heads(heads, rows)
    if rows == 1 and heads <= 6 * MULTIPROCESSORS:
        return ONE_ROW_OF_SOME_HEADS if heads <= 2 * MULTIPROCESSORS else ONE_ROW
    if rows <= MANY_ROWS:
        return MANY_HEADS
    return SOME_HEADS_OF_MANY_ROWS if heads <= 3 * MULTIPROCESSORS else MANY_HEADS_OF_MANY_ROWS


def _shape_of_few_heads(heads: int, rows: int) -> LaunchShape:
    if rows > MANY_ROWS:
        return FEW_HEADS_OF_MANY_ROWS
    if 4 * heads <= MULTIPROCESSORS:
        return FEWEST_HEADS
    return ONE_ROW_OF_FEW_HEADS if rows == 1 else FEW_HEADS


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
    key_dim, value_dim = state.recurrent.shape[2:]
    if reason := missing(projected.device):
        return reason
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
    if not out.is_contiguous():
        return "outputs must be contiguous"
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
    shape = launch_shape(geometry.batch * state.recurrent.shape[1], geometry.rows)
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
        FOLDER / f"{shape.function}.cu",
        shape.function,
        state.recurrent.device,
        KEY_HEADS=parameters.num_key_heads,
        VALUE_HEADS=state.recurrent.shape[1],
        ROWS=rows,
        WINDOW=state.window_rows,
        STASH=int(commit is Commit.STASH),
        **shape.definitions,
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
    kernel.launch(
        (value_heads * shape.split, geometry.batch),
        shape.threads,
        arguments,
        shared_bytes=shape.shared_bytes(geometry.rows, state.window_rows),
    )
