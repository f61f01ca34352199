"""Every kind of projection is y = x W^T (+ bias), whatever its weights look like in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from draftproof.kernels.half_linear import fbgemm
from draftproof.layers.linear import (
    DenseLinear,
    Fp8BlockLinear,
    Fp8ScaledLinear,
    HalfLinear,
    Linear,
    Nvfp4Linear,
    ParallelLinear,
    TiedLinear,
)
from tools.quantization import (
    decode_fp8,
    decode_fp8_block,
    decode_nvfp4,
    encode_fp8_block,
    encode_fp8_channel,
    encode_fp8_tensor,
    encode_nvfp4,
)

OUT, IN = 56, 48
Case = tuple[Linear, Tensor, Tensor | None]


def random_weight(seed: int = 0) -> Tensor:
    return torch.randn(OUT, IN, generator=torch.Generator().manual_seed(seed))


def dense() -> Case:
    weight = random_weight()
    return DenseLinear(weight), weight, None


def dense_with_bias() -> Case:
    weight, bias = random_weight(), torch.arange(OUT) / 7
    return DenseLinear(weight, bias), weight, bias


def tied() -> Case:
    weight = random_weight()
    return TiedLinear(weight), weight, None


def nvfp4() -> Case:
    encoded = encode_nvfp4(random_weight())
    return Nvfp4Linear(*encoded), decode_nvfp4(encoded), None


def fp8_block() -> Case:
    encoded = encode_fp8_block(random_weight(), (16, 32))
    return Fp8BlockLinear(*encoded, (16, 32)), decode_fp8_block(encoded, (16, 32)), None


def fp8_tensor() -> Case:
    encoded = encode_fp8_tensor(random_weight())
    return Fp8ScaledLinear(*encoded), decode_fp8(encoded), None


def fp8_channel() -> Case:
    encoded = encode_fp8_channel(random_weight())
    return Fp8ScaledLinear(*encoded), decode_fp8(encoded), None


def half() -> Case:
    weight = random_weight().bfloat16().float()
    return HalfLinear(weight), weight, None


def half_with_scale() -> Case:
    weight, scale = random_weight().bfloat16().float(), torch.arange(1, OUT + 1) / 9
    return HalfLinear(weight, scale), weight * scale.unsqueeze(1), None


def side_by_side() -> Case:
    members = [nvfp4(), dense(), fp8_channel()]
    return (
        ParallelLinear([member[0] for member in members]),
        torch.cat([member[1] for member in members]),
        None,
    )


CASES = [dense, dense_with_bias, tied, nvfp4, fp8_block, fp8_tensor, fp8_channel, side_by_side]
HALF_CASES = [
    pytest.param(case, marks=pytest.mark.skipif(not fbgemm.is_available(), reason="torch has no FBGEMM"))
    for case in (half, half_with_scale)
]


@pytest.mark.parametrize("make", [*CASES, *HALF_CASES])
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3), (2, 1, 5)])
def test_the_product(make: Callable[[], Case], shape: tuple[int, ...]) -> None:
    linear, weight, bias = make()
    rows = torch.randn(*shape, IN, generator=torch.Generator().manual_seed(1))
    before = rows.clone()
    expected = rows.double() @ weight.double().t()
    if bias is not None:
        expected = expected + bias
    found = linear(rows)
    assert found.shape == (*shape, linear.out_features) == expected.shape
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-5)
    assert torch.equal(rows, before)


@pytest.mark.parametrize("make", [*CASES, *HALF_CASES])
def test_rows_that_are_a_view(make: Callable[[], Case]) -> None:
    linear, _, _ = make()
    wide = torch.randn(2, 3, 2 * IN, generator=torch.Generator().manual_seed(1))
    part = wide.chunk(2, -1)[1]
    torch.testing.assert_close(linear(part), linear(part.contiguous()))


@pytest.mark.parametrize("make", [nvfp4, fp8_block, fp8_tensor, fp8_channel])
def test_packed_weights_answer_in_the_dtype_of_the_rows(make: Callable[[], Case]) -> None:
    linear, weight, _ = make()
    rows = torch.randn(3, IN, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = linear(rows)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, torch.mm(rows, weight.bfloat16().t()), atol=0.05, rtol=0.05)


def test_a_tied_projection_shares_the_embedding() -> None:
    linear, weight, _ = tied()
    assert isinstance(linear, TiedLinear)
    assert linear.embedding.data_ptr() == weight.data_ptr()


def test_half_precision_is_for_weights_that_lose_nothing() -> None:
    assert fbgemm.fits_half(random_weight().bfloat16().float())
    assert fbgemm.fits_half(random_weight().half().float())
    assert not fbgemm.fits_half(random_weight())
    assert not fbgemm.fits_half(torch.tensor([[70000.0]]))
    assert not fbgemm.fits_half(torch.tensor([[1.0, float("nan")]]))


@pytest.mark.skipif(not fbgemm.is_available(), reason="torch has no FBGEMM")
def test_a_row_of_a_half_precision_product_does_not_depend_on_the_others() -> None:
    linear, _, _ = half()
    rows = torch.randn(13, IN, generator=torch.Generator().manual_seed(1))
    together = linear(rows)
    for row in range(13):
        assert torch.equal(together[row : row + 1], linear(rows[row : row + 1]))
