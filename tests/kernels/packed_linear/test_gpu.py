"""The packed linear's kernels on a GPU, against the definition there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear import cuda, reference, triton
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_weights.formats import PackedMatrix
from draftproof.kernels.packed_weights.packing import (
    pack_dense,
    pack_int8,
    pair_gate_up,
)
from tests.support.packed_matrices import fp8, fp8_blocks, nvfp4

pytestmark = pytest.mark.gpu

SHAPES = [(272, 2048), (257, 256), (97, 80), (144, 4096), (80, 5120), (527, 17408)]


@pytest.fixture(autouse=True)
def exact_products() -> Any:
    """The definition multiplies in float32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def random(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.02


PACKERS = [pack_dense, fp8, fp8_blocks, pack_int8, nvfp4]


@functools.cache
def random_packed(pack: Callable[[Tensor], PackedMatrix], outputs: int, inputs: int) -> PackedMatrix:
    return on_gpu(pack(random(outputs, inputs, 1)))


def on_gpu(matrix: PackedMatrix) -> PackedMatrix:
    def moved(part: Tensor | None) -> Tensor | None:
        return None if part is None else part.cuda()

    return replace(
        matrix,
        blocks=matrix.blocks.cuda(),
        row_scale=moved(matrix.row_scale),
        block_scale=moved(matrix.block_scale),
    )


def activations(rows: int, columns: int) -> Tensor:
    """BF16 with a stride."""
    return random(rows, columns + 16, 9).mul(50).bfloat16().cuda()[:, :columns]


def compare(
    backend: ModuleType, x: Tensor, matrix: PackedMatrix, width: int, dtype: torch.dtype, **named: Any
) -> None:
    """Twice into a poisoned output with a stride."""
    got = torch.full((x.shape[0], width + 8), float("nan"), dtype=dtype, device="cuda")[:, :width]
    meant = torch.empty(x.shape[0], width, dtype=dtype, device="cuda")
    reference.packed_linear(x, matrix, out=meant, **named)
    for _ in range(2):
        backend.packed_linear(x, matrix, out=got, **named)
    error = (got.float() - meant.float()).norm() / meant.float().norm()
    # BF16: a sum on the other side of a rounding, now and then. float32: another order of sums.
    assert float(error) < (2e-3 if dtype is torch.bfloat16 else 1e-4)


@pytest.mark.parametrize("rows", [3, 7, 13])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pack", PACKERS)
def test_cuda(pack: Callable[[Tensor], PackedMatrix], shape: tuple[int, int], rows: int) -> None:
    outputs, inputs = shape
    x, matrix = activations(rows, inputs), random_packed(pack, outputs, inputs)
    out = torch.empty(rows, outputs, device="cuda")
    assert cuda.supports(x, matrix, out=out) is None
    if outputs % 2:
        norm = NormScale(torch.rand(inputs, device="cuda") + 0.5, 1e-6)
        compare(cuda, x, matrix, outputs, torch.float32, norm=norm)
    else:
        residual = random(rows, outputs, 3).bfloat16().cuda()
        compare(cuda, x, matrix, outputs, torch.bfloat16, residual=residual)


@pytest.mark.parametrize("rows", [1, 4, 7, 13])
@pytest.mark.parametrize("pack", [fp8, fp8_blocks, pack_dense])
@pytest.mark.parametrize(("outputs", "others", "inputs"), [(272, 64, 2048), (256, 20, 3072), (48, 96, 5120)])
def test_a_matrix_behind(
    pack: Callable[[Tensor], PackedMatrix], outputs: int, others: int, inputs: int, rows: int
) -> None:
    """FP8 and BF16 rows share a launch, other formats have one each."""
    matrix = replace(random_packed(pack, outputs, inputs), behind=random_packed(pack_dense, others, inputs))
    norm = NormScale(torch.rand(inputs, device="cuda") + 0.5, 1e-6)
    compare(cuda, activations(rows, inputs), matrix, outputs + others, torch.float32, norm=norm)


@pytest.mark.parametrize("rows", [1, 4, 12])
def test_fp8_products_keep_small_and_large_numbers(rows: int) -> None:
    """Inputs are FP16 there, whose range is narrow."""
    matrix, x = random_packed(fp8, 272, 2048), activations(rows, 2048).clone()
    x[:, 5] *= 3e6
    x[:, 6] *= 1e-6
    x[-1] *= 1e-25
    x[0, 7] = 0
    for row in range(rows):
        compare(cuda, x[row : row + 1], matrix, 272, torch.float32)
    norm = NormScale(torch.rand(2048, device="cuda") + 0.5, 1e-6)
    compare(cuda, x, matrix, 272, torch.float32, norm=norm)


@pytest.mark.parametrize("rows", [3, 64, 300])
@pytest.mark.parametrize("shape", [(272, 2048), (97, 80), (2048, 4096)])
@pytest.mark.parametrize("pack", PACKERS)
def test_triton(pack: Callable[[Tensor], PackedMatrix], shape: tuple[int, int], rows: int) -> None:
    outputs, inputs = shape
    x, matrix = activations(rows, inputs), random_packed(pack, outputs, inputs)
    norm = NormScale(torch.rand(inputs, device="cuda") + 0.5, 1e-6)
    compare(triton, x, matrix, outputs, torch.float32, norm=norm)


@pytest.mark.parametrize("backend", [cuda, triton])
@pytest.mark.parametrize("pack", PACKERS)
def test_pairs(pack: Callable[[Tensor], PackedMatrix], backend: ModuleType) -> None:
    matrix = on_gpu(pair_gate_up(pack(random(264, 2048, 1)), pack(random(264, 2048, 2))))
    norm = NormScale(torch.rand(2048, device="cuda") + 0.5, 1e-6)
    named = {"norm": norm, "epilogue": Epilogue.SILU_PAIRS}
    compare(backend, activations(5, 2048), matrix, 264, torch.bfloat16, **named)


def test_the_same_call_gives_the_same_bits_in_a_graph() -> None:
    x, matrix = activations(4, 2048), on_gpu(pack_dense(random(4096, 2048, 1)))
    eager, captured = (torch.empty(4, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    cuda.packed_linear(x, matrix, out=eager)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            cuda.packed_linear(x, matrix, out=captured)
    graph.replay()
    assert torch.equal(eager, captured)


@pytest.mark.parametrize(("rows", "inputs", "reason"), [(17, 64, "17 rows"), (2, 36, "16 bytes")])
def test_calls_that_cuda_refuses(rows: int, inputs: int, reason: str) -> None:
    matrix, out = on_gpu(pack_dense(random(16, inputs, 1))), torch.empty(rows, 16, device="cuda")
    assert reason in str(cuda.supports(activations(rows, inputs), matrix, out=out))
