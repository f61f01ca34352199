"""What the backends refuse, and which launch shape a call gets."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch

from draftproof.architecture.spec import GatedDeltaNetSpec
from draftproof.kernels.gated_delta_decode import cuda
from draftproof.kernels.gated_delta_decode import triton as portable
from draftproof.kernels.gated_delta_decode.state import Commit, ProjectedColumns
from tests.kernels.gated_delta_decode.window import Lockstep

SPEC = GatedDeltaNetSpec(1, 2, key_head_dim=16, value_head_dim=32, conv_kernel=4)
SHARED_BYTES_OF_A_MULTIPROCESSOR = 228 * 1024
SHARED_BYTES_OF_EVERY_BLOCK = 1024


def reason(
    backend: ModuleType,
    spec: GatedDeltaNetSpec = SPEC,
    rows: int = 4,
    room: int = 4,
    commit: Commit = Commit.STASH,
    dtype: torch.dtype = torch.bfloat16,
) -> str | None:
    lockstep = Lockstep(spec, backend.gated_delta_decode, window_rows=room, dtype=dtype)
    launch = lockstep.prepare([1], rows)
    columns = ProjectedColumns.side_by_side(spec)
    answer: str | None = backend.supports(
        launch.projected, columns, lockstep.parameters, lockstep.state, launch.geometry, commit, launch.out
    )
    return answer


def test_the_portable_kernel_says_what_it_cannot_do() -> None:
    assert reason(portable) is None
    assert reason(portable, rows=6, commit=Commit.ALL) is None
    assert "powers of two" in str(reason(portable, replace(SPEC, key_head_dim=24)))
    assert "3 taps" in str(reason(portable, replace(SPEC, conv_kernel=3)))
    assert "do not fit a stash of 4" in str(reason(portable, rows=5))
    assert "BF16" in str(reason(portable, dtype=torch.float32))


def test_the_cuda_kernel_needs_a_gpu() -> None:
    assert reason(cuda) == "needs compute capability 9.0"


@pytest.mark.parametrize(
    ("heads", "rows", "shape"),
    [
        (32, 1, cuda.FEWEST_HEADS),
        (32, 4, cuda.FEWEST_HEADS),
        (64, 4, cuda.FEW_HEADS),
        (32, 8, cuda.FEW_HEADS_OF_MANY_ROWS),
        (64, 1, cuda.ONE_ROW_OF_FEW_HEADS),
        (128, 1, cuda.ONE_ROW_OF_SOME_HEADS),
        (256, 1, cuda.ONE_ROW_OF_SOME_HEADS),
        (512, 1, cuda.ONE_ROW),
        (1024, 1, cuda.MANY_HEADS),
        (128, 2, cuda.MANY_HEADS),
        (128, 4, cuda.MANY_HEADS),
        (128, 5, cuda.SOME_HEADS_OF_MANY_ROWS),
        (1024, 2, cuda.MANY_HEADS),
        (4096, 8, cuda.MANY_HEADS_OF_MANY_ROWS),
    ],
)
def test_the_launch_shape_follows_the_heads_of_the_batch(
    heads: int, rows: int, shape: cuda.LaunchShape
) -> None:
    assert cuda.launch_shape(heads, rows) == shape


@pytest.mark.parametrize("shape", cuda.SHAPES, ids=str)
def test_a_block_is_whole_warps(shape: cuda.LaunchShape) -> None:
    assert shape.threads % 64 == 0
    assert shape.threads <= 512


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_three_blocks_of_the_batch_form_share_a_multiprocessor(rows: int) -> None:
    size = cuda.MANY_HEADS.shared_bytes(rows, window=rows) + SHARED_BYTES_OF_EVERY_BLOCK
    assert 3 * size <= SHARED_BYTES_OF_A_MULTIPROCESSOR
