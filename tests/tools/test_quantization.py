"""The encoders write what the formats define, and lose no more than rounding."""

from __future__ import annotations

import pytest
import torch

from tools.quantization import (
    Fp8Weight,
    Nvfp4Weight,
    decode_fp8,
    decode_fp8_block,
    decode_nvfp4,
    decode_nvfp4_compressed,
    encode_fp8_block,
    encode_fp8_channel,
    encode_fp8_tensor,
    encode_nvfp4,
    encode_nvfp4_compressed,
    nvfp4_global_scale,
)

GRID = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def random_weight(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.2


def test_nvfp4_layout_is_low_nibble_first() -> None:
    row = torch.zeros(1, 16)
    # amax 6 * 448 gives global scale 1 and block scale 448, so the codes can be read off.
    row[0, 0], row[0, 1], row[0, 3] = 6 * 448.0, 0.5 * 448.0, -1.0 * 448.0
    encoded = encode_nvfp4(row)
    assert encoded.global_scale.item() == 1.0
    assert encoded.block_scale.float().tolist() == [[448.0]]
    assert encoded.packed[0].tolist() == [0x17, 0xA0, 0, 0, 0, 0, 0, 0]


def test_nvfp4_shapes_and_dtypes() -> None:
    encoded = encode_nvfp4(random_weight(24, 48))
    assert (encoded.packed.shape, encoded.packed.dtype) == ((24, 24), torch.uint8)
    assert (encoded.block_scale.shape, encoded.block_scale.dtype) == ((24, 3), torch.float8_e4m3fn)
    assert (encoded.global_scale.shape, encoded.global_scale.dtype) == ((), torch.float32)


def test_nvfp4_global_scale_is_amax_over_the_largest_product() -> None:
    weight = random_weight(8, 32)
    assert encode_nvfp4(weight).global_scale.item() == pytest.approx(weight.abs().max().item() / (6 * 448))


def test_nvfp4_values_of_the_grid_survive_exactly() -> None:
    values = torch.tensor(GRID + [-value for value in GRID]).reshape(1, 16) * 448.0
    assert torch.equal(decode_nvfp4(encode_nvfp4(values)), values)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.25, 0.0),
        (0.75, 1.0),
        (1.25, 1.0),
        (1.75, 2.0),
        (2.5, 2.0),
        (3.5, 4.0),
        (5.0, 4.0),
        (5.1, 6.0),
        (0.26, 0.5),
    ],
)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nvfp4_rounds_to_nearest_even(value: float, rounded: float, sign: float) -> None:
    row = torch.zeros(1, 16)
    row[0, 0], row[0, 5] = 6 * 448.0, sign * value * 448.0
    assert decode_nvfp4(encode_nvfp4(row))[0, 5].item() == sign * rounded * 448.0


def test_nvfp4_error_is_bounded_by_half_the_widest_step() -> None:
    weight = random_weight(32, 64)
    error = (decode_nvfp4(encode_nvfp4(weight)) - weight).abs().reshape(32, 4, 16).amax(dim=-1)
    block_amax = weight.abs().reshape(32, 4, 16).amax(dim=-1)
    # Half of the widest step (1 of 6) plus the rounding of the block scale (1/16 relative).
    assert (error <= block_amax * (1 / 6 + 1 / 16)).all()


def test_nvfp4_zero_blocks_and_zero_tensors_have_usable_scales() -> None:
    weight = random_weight(4, 64)
    weight[1, 16:32] = 0
    for candidate in (weight, torch.zeros(4, 64), torch.full((4, 64), 1e-43)):
        encoded = encode_nvfp4(candidate)
        assert (encoded.block_scale.float() > 0).all()
        assert encoded.global_scale > 0
        assert torch.isfinite(decode_nvfp4(encoded)).all()
    assert (decode_nvfp4(encode_nvfp4(weight))[1, 16:32] == 0).all()
    assert (decode_nvfp4(encode_nvfp4(torch.zeros(4, 64))) == 0).all()


def test_nvfp4_block_far_below_the_largest_keeps_a_positive_scale() -> None:
    weight = torch.full((1, 32), 1e-12)
    weight[0, 0] = 1.0
    encoded = encode_nvfp4(weight)
    assert encoded.block_scale.float()[0, 1].item() == 2.0**-9
    assert (decode_nvfp4(encoded)[0, 16:] == 0).all()


def test_nvfp4_members_of_a_fused_group_can_share_the_global_scale() -> None:
    gate, up = random_weight(8, 32, 1), random_weight(8, 32, 2) * 3
    shared = nvfp4_global_scale(gate, up)
    assert shared == nvfp4_global_scale(up)
    encoded = encode_nvfp4(gate, shared)
    assert encoded.global_scale == shared
    assert (decode_nvfp4(encoded) - gate).abs().max() < 0.25 * gate.abs().max()


@pytest.mark.parametrize(
    "weight",
    [
        torch.zeros(2, 24),
        torch.zeros(2, 2, 16),
        torch.zeros(2, 16, dtype=torch.bfloat16),
        torch.full((2, 16), torch.nan),
    ],
)
def test_nvfp4_refuses_what_it_cannot_encode(weight: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"multiple of 16|float32 matrix|not finite"):
        encode_nvfp4(weight)


def test_compressed_dialect_stores_the_reciprocal() -> None:
    weight = random_weight(8, 32)
    plain, compressed = encode_nvfp4(weight), encode_nvfp4_compressed(weight)
    assert compressed.weight_global_scale.shape == (1,)
    assert compressed.weight_global_scale.item() == pytest.approx(6 * 448 / weight.abs().max().item())
    assert torch.equal(compressed.weight_packed, plain.packed)
    torch.testing.assert_close(decode_nvfp4_compressed(compressed), decode_nvfp4(plain))


@pytest.mark.parametrize("block", [(128, 128), (16, 16), (16, 8)])
@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.bfloat16])
def test_fp8_block_covers_sizes_that_do_not_divide(block: tuple[int, int], scale_dtype: torch.dtype) -> None:
    weight = random_weight(40, 200)
    weight[:16] *= 50
    encoded = encode_fp8_block(weight, block, scale_dtype)
    assert encoded.weight.dtype == torch.float8_e4m3fn
    assert encoded.scale.dtype == scale_dtype
    assert encoded.scale.shape == (-(-40 // block[0]), -(-200 // block[1]))
    error = (decode_fp8_block(encoded, block) - weight).abs()
    # 3 mantissa bits: half a step is 1/16 of the value; a value clamped by a rounded-down scale loses less.
    assert (error <= weight.abs() / 16 + encoded.scale.float().max() * 2.0**-10).all()


def test_fp8_block_scale_is_the_block_amax_over_448() -> None:
    weight = random_weight(32, 48)
    scale = encode_fp8_block(weight, (16, 16)).scale
    assert scale[1, 2].item() == pytest.approx(weight[16:32, 32:48].abs().max().item() / 448)


def test_fp8_tensor_and_channel_scales() -> None:
    weight = random_weight(6, 20)
    per_tensor, per_channel = encode_fp8_tensor(weight), encode_fp8_channel(weight)
    assert per_tensor.scale.shape == ()
    assert per_channel.scale.shape == (6, 1)
    torch.testing.assert_close(per_channel.scale[:, 0], weight.abs().amax(dim=1) / 448)
    for encoded in (per_tensor, per_channel):
        assert ((decode_fp8(encoded) - weight).abs() <= weight.abs() / 16 + per_tensor.scale * 2.0**-10).all()


def test_fp8_of_zero_is_zero_with_scale_one() -> None:
    zero = torch.zeros(20, 20)
    for encoded in (encode_fp8_block(zero, (16, 16)), encode_fp8_tensor(zero), encode_fp8_channel(zero)):
        assert (encoded.scale == 1).all()
        assert (encoded.weight.float() == 0).all()


def test_results_unpack_as_tuples() -> None:
    weight, scale = encode_fp8_tensor(random_weight(4, 16))
    assert isinstance(encode_fp8_tensor(random_weight(4, 16)), Fp8Weight)
    assert weight.shape == (4, 16)
    assert scale.dim() == 0
    assert isinstance(encode_nvfp4(random_weight(4, 16)), Nvfp4Weight)
