"""Real head counts on a GPU: both backends against the definition."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pytest
import torch

from draftproof.architecture.spec import GatedDeltaNetSpec
from draftproof.kernels.gated_delta_decode import cuda
from draftproof.kernels.gated_delta_decode import triton as portable
from draftproof.kernels.gated_delta_decode.state import Commit
from tests.kernels.gated_delta_decode.window import SCRAP, Decode, Lockstep

pytestmark = pytest.mark.gpu

OUT = 0.03
"""Outputs are rounded to BF16: a relative error of 2^-9, of numbers up to about 6."""

HEADS_OF_35B, HEADS_OF_397B, HEADS_OF_27B = (
    GatedDeltaNetSpec(16, value_heads, 128, 128, conv_kernel=4) for value_heads in (32, 64, 48)
)
HEADS_OF_TINY = GatedDeltaNetSpec(2, 4, 64, 64, conv_kernel=4)


def run_all_kinds_of_windows(spec: GatedDeltaNetSpec, decode: Decode, rows: int) -> None:
    lockstep = Lockstep(spec, decode, window_rows=rows, device="cuda")
    for slot in (1, 2, 3):
        lockstep.admit(slot, side=slot % 2)
    for slots, pending, count, commit in (
        ([1], [0], rows, Commit.STASH),
        ([1], [min(2, rows)], rows, Commit.STASH),
        ([2, 3, SCRAP, 1], [0, 0, 0, rows], rows, Commit.STASH),
        ([3, 1, 2], [1, rows, 0], rows, Commit.STASH),
        ([1, 2], [1, rows], 1, Commit.ALL),
        ([1, 3], [0, 1], rows, Commit.ALL),
        ([3, 1, 2], [0, 0, 0], 1, Commit.ALL),
        ([1, 2, 3], [0, 0, 0], rows, Commit.STASH),
    ):
        lockstep.run(slots, pending, count, commit).assert_equal(OUT)


@pytest.mark.parametrize(
    ("backend", "rows"), [(cuda, 1), (cuda, 8), (portable, 4)], ids=["cuda 1", "cuda 8", "triton 4"]
)
def test_it_is_the_definition(backend: ModuleType, rows: int) -> None:
    run_all_kinds_of_windows(HEADS_OF_35B, backend.gated_delta_decode, rows)


@pytest.mark.parametrize("spec", [HEADS_OF_397B, HEADS_OF_27B], ids=["397B", "27B"])
def test_other_head_counts(spec: GatedDeltaNetSpec) -> None:
    run_all_kinds_of_windows(spec, cuda.gated_delta_decode, 3)


def test_narrow_heads_are_for_the_portable_kernel() -> None:
    run_all_kinds_of_windows(HEADS_OF_TINY, portable.gated_delta_decode, 4)


@pytest.mark.parametrize("shape", cuda.SHAPES, ids=str)
def test_every_launch_shape(shape: cuda.LaunchShape) -> None:
    run_all_kinds_of_windows(HEADS_OF_35B, partial(cuda.run, shape), 4)


@pytest.mark.parametrize("shape", [cuda.FEWEST_HEADS, cuda.ONE_ROW_OF_FEW_HEADS, cuda.MANY_HEADS], ids=str)
def test_without_a_stash(shape: cuda.LaunchShape) -> None:
    plain = Lockstep(HEADS_OF_35B, partial(cuda.run, shape), window_rows=0, device="cuda")
    plain.admit(4, side=1)
    for _ in range(3):
        plain.run([4], [0], 1, Commit.ALL).assert_equal(OUT)


@pytest.mark.parametrize("shape", [cuda.FEWEST_HEADS, cuda.SOME_HEADS_OF_MANY_ROWS, cuda.MANY_HEADS], ids=str)
@pytest.mark.parametrize("commit", Commit)
def test_a_graph_gives_the_bits_of_eager_launches(shape: cuda.LaunchShape, commit: Commit) -> None:
    """Three windows in a row, each launched so that it may overlap with the one before."""
    slots = [1, 2, 3]
    counts = [[0, 0, 0], [4, 1, 2], [3, 4, 0]] if commit is Commit.STASH else [[0, 0, 0]] * 3
    eager, captured = (Lockstep(HEADS_OF_35B, partial(cuda.run, shape), 4, device="cuda") for _ in range(2))
    for lockstep in (eager, captured):
        for slot in slots:
            lockstep.admit(slot, side=0)
    expected = [eager.run(slots, pending, 4, commit).out for pending in counts]
    graph = torch.cuda.CUDAGraph()
    inputs = captured.prepare(slots, 4)
    with torch.cuda.graph(graph):
        captured.launch(inputs, commit)
    for pending, bits in zip(counts, expected, strict=True):
        captured.pending[1:4] = torch.tensor(pending, dtype=torch.int32)
        captured.refill(inputs)
        graph.replay()
        captured.parity[1:4] = 1 - captured.parity[1:4]
        assert torch.equal(inputs.out.view(3, 4, -1).float(), bits)
    assert torch.equal(captured.state.recurrent[1:4], eager.state.recurrent[1:4])
