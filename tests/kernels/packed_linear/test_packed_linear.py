"""The packed linear: its definition against a plain product, and its kernels against the definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear import reference, triton
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_weights.formats import PackedMatrix, WeightFormat
from draftproof.kernels.packed_weights.packing import (
    pack_dense,
    pack_int8,
    pair_gate_up,
)
from draftproof.layers.linear import PackedLinear
from tests.support.packed_matrices import fp8, fp8_blocks, nvfp4

EPSILON = 1e-6


def dense(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.1


def bf16(weight: Tensor) -> PackedMatrix:
    return pack_dense(weight)


def bf16_with_bias(weight: Tensor) -> PackedMatrix:
    return pack_dense(weight, weight.sum(1))


PACKERS = [bf16, bf16_with_bias, fp8, fp8_blocks, pack_int8, nvfp4]
PAIRABLE = [bf16, fp8, fp8_blocks, pack_int8, nvfp4]


def activations(rows: int, columns: int) -> Tensor:
    """BF16 with a stride, as a part of a wider buffer."""
    return dense(rows, columns + 8, seed=9).mul(10).bfloat16()[:, :columns]


def norm_of(columns: int) -> NormScale:
    return NormScale(torch.rand(columns, generator=torch.Generator().manual_seed(5)) + 0.5, EPSILON)


def poisoned(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """An output with a stride, full of NaN."""
    return torch.full((rows, columns + 8), float("nan"), dtype=dtype)[:, :columns]


def test_the_definition_is_norm_then_product_then_residual() -> None:
    weight, x, norm = dense(48, 64), activations(3, 64), norm_of(64)
    residual = dense(3, 48, seed=2).bfloat16()
    out = poisoned(3, 48, torch.float32)
    reference.packed_linear(x, pack_dense(weight), out=out, norm=norm, residual=residual)
    normed = F.rms_norm(x.float(), (64,), norm.weight, EPSILON)
    meant = normed @ weight.bfloat16().float().t() + residual.float()
    torch.testing.assert_close(out, meant, rtol=5e-3, atol=5e-3)  # the weighted rows are rounded to BF16


def test_pairs_are_activated() -> None:
    gate, up, x = dense(24, 64, 1), dense(24, 64, 2), activations(2, 64)
    out = poisoned(2, 24, torch.float32)
    matrix = pair_gate_up(pack_dense(gate), pack_dense(up))
    reference.packed_linear(x, matrix, out=out, epilogue=Epilogue.SILU_PAIRS)
    products = [x.float() @ weight.bfloat16().float().t() for weight in (gate, up)]
    torch.testing.assert_close(out, F.silu(products[0]) * products[1])


def test_a_residual_may_be_the_output() -> None:
    x, residual = activations(2, 32), dense(2, 16).bfloat16()
    apart = poisoned(2, 16, torch.bfloat16)
    reference.packed_linear(x, pack_dense(dense(16, 32)), out=apart, residual=residual)
    reference.packed_linear(x, pack_dense(dense(16, 32)), out=residual, residual=residual)
    assert torch.equal(residual, apart)


@pytest.mark.parametrize("backend", [reference, triton])
def test_outputs_of_a_matrix_behind_follow(backend: ModuleType) -> None:
    x, norm, residual = activations(3, 144), norm_of(144), dense(3, 72, seed=4).bfloat16()
    first, second = fp8(dense(48, 144, 1)), pack_dense(dense(24, 144, 2))
    joined = replace(first, behind=second)
    assert (joined.outputs, joined.bytes) == (72, first.bytes + second.bytes)
    assert joined.apart == (first, second)
    out, alone = (poisoned(3, 72, torch.float32) for _ in range(2))
    backend.packed_linear(x, joined, out=out, norm=norm, residual=residual)
    for matrix, columns in ((first, slice(48)), (second, slice(48, 72))):
        backend.packed_linear(x, matrix, out=alone[:, columns], norm=norm, residual=residual[:, columns])
    assert torch.equal(out, alone)


@pytest.mark.parametrize("pack", PACKERS)
def test_the_layer_multiplies_by_what_was_packed(pack: Callable[[Tensor], PackedMatrix]) -> None:
    matrix, x = pack(dense(40, 144)), activations(5, 144).float()
    out = poisoned(5, 40, torch.float32)
    reference.packed_linear(x, matrix, out=out)
    torch.testing.assert_close(PackedLinear(matrix)(x.view(1, 5, 144))[0], out, rtol=1e-5, atol=1e-5)


def test_the_layer_gives_gate_then_up() -> None:
    gate, up, x = dense(24, 64, 1), dense(24, 64, 2), dense(2, 64)
    layer = PackedLinear(pair_gate_up(pack_dense(gate), pack_dense(up)))
    assert layer.out_features == 48
    meant = x @ torch.cat((gate, up)).bfloat16().float().t()
    torch.testing.assert_close(layer(x), meant)


def same_as_reference(x: Tensor, matrix: PackedMatrix, width: int, dtype: torch.dtype, **named: Any) -> None:
    got, meant = (poisoned(x.shape[0], width, dtype) for _ in range(2))
    reference.packed_linear(x, matrix, out=meant, **named)
    triton.packed_linear(x, matrix, out=got, **named)
    # One rounding to BF16 apart, or float32 sums in another order.
    tolerance = 8e-3 if dtype is torch.bfloat16 else 1e-4
    torch.testing.assert_close(got, meant, rtol=tolerance, atol=tolerance * float(meant.float().abs().max()))


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 40, 144), (5, 257, 80), (17, 16, 384)])
def test_triton_with_norm(
    pack: Callable[[Tensor], PackedMatrix], rows: int, outputs: int, inputs: int
) -> None:
    x, norm = activations(rows, inputs), norm_of(inputs)
    same_as_reference(x, pack(dense(outputs, inputs)), outputs, torch.float32, norm=norm)


@pytest.mark.parametrize("pack", PACKERS)
def test_triton_with_residual(pack: Callable[[Tensor], PackedMatrix]) -> None:
    x, residual = activations(3, 272), dense(3, 72, seed=4).bfloat16()
    same_as_reference(x, pack(dense(72, 272)), 72, torch.bfloat16, residual=residual)


@pytest.mark.parametrize("pack", PAIRABLE)
@pytest.mark.parametrize("width", [24, 136])
def test_triton_with_pairs(pack: Callable[[Tensor], PackedMatrix], width: int) -> None:
    matrix = pair_gate_up(pack(dense(width, 144, 1)), pack(dense(width, 144, 2)))
    x, norm = activations(3, 144), norm_of(144)
    same_as_reference(x, matrix, width, torch.bfloat16, norm=norm, epilogue=Epilogue.SILU_PAIRS)


def test_triton_splits_inputs_and_leaves_no_trace() -> None:
    matrix, x = pack_dense(dense(64, 512)), activations(2, 512)
    plan = triton.Plan(outputs=16, rows=16, inputs=64, parts=3, warps=4, stages=2)
    got, meant = (poisoned(2, 64, torch.float32) for _ in range(2))
    reference.packed_linear(x, matrix, out=meant)
    triton.multiply_by(plan, x, matrix, out=got)
    torch.testing.assert_close(got, meant, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pack", [bf16, fp8, pack_int8])
def test_triton_multiplies_the_norm_in_by_the_way(pack: Callable[[Tensor], PackedMatrix]) -> None:
    matrix, x, norm = pack(dense(40, 144)), activations(19, 144), norm_of(144)
    plan = triton.Plan(outputs=16, rows=16, inputs=128, parts=1, warps=4, stages=2, fused=True)
    got, meant = (poisoned(19, 40, torch.float32) for _ in range(2))
    reference.packed_linear(x, matrix, out=meant, norm=norm)
    triton.multiply_by(plan, x, matrix, out=got, norm=norm)
    torch.testing.assert_close(got, meant, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kept_as", list(WeightFormat))
@pytest.mark.parametrize("rows", [1, 4, 16, 64, 256])
def test_plans_cover_the_shapes_that_occur(kept_as: WeightFormat, rows: int) -> None:
    for outputs, inputs in (
        (12352, 2048),
        (2048, 4096),
        (257, 2048),
        (5120, 17408),
        (160, 80),
        (248320, 2048),
    ):
        blocks = torch.empty(-(-outputs // 16), 1, 1)
        plan = triton.choose_plan(PackedMatrix(kept_as, outputs, inputs, blocks), rows)
        assert plan.outputs % 16 == 0
        assert plan.rows >= 16
        assert plan.inputs >= (128 if kept_as is not WeightFormat.BF16 else 32)
        assert 1 <= plan.parts <= triton.MOST_PARTS
