"""Three decoders of the same formats, written apart, agree: the engine's, the encoders' and the reader's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from draftproof.kernels.dequantize.reference import (
    dequantize_fp8_block,
    dequantize_fp8_scaled,
    dequantize_nvfp4,
)
from draftproof.links.element_values import decode, decode_e2m1
from tools.quantization import (
    decode_fp8,
    decode_fp8_block,
    decode_nvfp4,
    decode_nvfp4_compressed,
    encode_fp8_block,
    encode_fp8_channel,
    encode_fp8_tensor,
    encode_nvfp4,
    encode_nvfp4_compressed,
)


def random_weight(rows: int, columns: int, seed: int = 0) -> Tensor:
    """Rows of very different sizes, some zeros."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator)
    weight *= torch.logspace(-3, 1, rows).unsqueeze(1)
    weight[rows // 2, : min(16, columns)] = 0
    return weight


def read_bytes(tensor: Tensor, dtype: str) -> Tensor:
    values = decode(tensor.contiguous().view(torch.uint8).numpy().tobytes(), dtype)
    assert values is not None
    return torch.from_numpy(values).view(tensor.shape)


def test_every_byte_of_packed_four_bit_floats() -> None:
    """Low nibble first; bit 3 is the sign; magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6."""
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    expected = [
        (-1.0 if nibble & 8 else 1.0) * magnitudes[nibble & 7]
        for byte in range(256)
        for nibble in (byte & 15, byte >> 4)
    ]
    packed = torch.arange(256, dtype=torch.uint8).view(8, 32)
    ones = torch.ones(8, 4, dtype=torch.float8_e4m3fn)
    real = dequantize_nvfp4(packed, ones, torch.tensor(1.0))
    assert real.flatten().tolist() == expected
    assert decode_e2m1(packed.numpy().tobytes()).tolist() == expected


@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (5, 48), (33, 80)])
def test_nvfp4_in_both_dialects(rows: int, columns: int) -> None:
    weight = random_weight(rows, columns)
    encoded = encode_nvfp4(weight)
    real = dequantize_nvfp4(encoded.packed, encoded.block_scale, encoded.global_scale)
    assert real.shape == weight.shape
    torch.testing.assert_close(real, decode_nvfp4(encoded), rtol=1e-6, atol=0)
    nibbles = torch.from_numpy(decode_e2m1(encoded.packed.numpy().tobytes())).view(rows, -1, 16)
    scales = read_bytes(encoded.block_scale, "F8_E4M3").unsqueeze(-1) * encoded.global_scale
    torch.testing.assert_close(real, (nibbles * scales).view(rows, columns), rtol=1e-6, atol=0)

    compressed = encode_nvfp4_compressed(weight)
    multiplier = compressed.weight_global_scale.reciprocal().reshape(())
    other = dequantize_nvfp4(compressed.weight_packed, compressed.weight_scale, multiplier)
    torch.testing.assert_close(other, decode_nvfp4_compressed(compressed), rtol=1e-6, atol=0)
    torch.testing.assert_close(other, real, rtol=1e-6, atol=0)


def test_nvfp4_of_a_stack_of_experts_is_one_expert_after_the_other() -> None:
    encoded = [encode_nvfp4(random_weight(6, 32, seed)) for seed in range(3)]
    stacked = dequantize_nvfp4(
        torch.stack([one.packed for one in encoded]),
        torch.stack([one.block_scale for one in encoded]),
        torch.stack([one.global_scale for one in encoded]),
    )
    torch.testing.assert_close(
        stacked, torch.stack([decode_nvfp4(one) for one in encoded]), rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("block", [(16, 16), (128, 128), (16, 32)])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (17, 40), (128, 256), (130, 129)])
@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.bfloat16])
def test_fp8_blocks_of_any_size_partial_ones_included(
    block: tuple[int, int], rows: int, columns: int, scale_dtype: torch.dtype
) -> None:
    encoded = encode_fp8_block(random_weight(rows, columns), block, scale_dtype)
    real = dequantize_fp8_block(encoded.weight, encoded.scale, block)
    assert torch.equal(real, decode_fp8_block(encoded, block))
    scales = read_bytes(encoded.scale, "BF16" if scale_dtype is torch.bfloat16 else "F32")
    raw = read_bytes(encoded.weight, "F8_E4M3")
    one_by_one = torch.stack(
        [
            torch.stack([raw[i, j] * scales[i // block[0], j // block[1]] for j in range(0, columns, 7)])
            for i in range(0, rows, 5)
        ]
    )
    torch.testing.assert_close(real[::5, ::7], one_by_one, rtol=1e-6, atol=0)


@pytest.mark.parametrize("encode", [encode_fp8_tensor, encode_fp8_channel])
def test_fp8_per_tensor_and_per_channel(encode) -> None:
    encoded = encode(random_weight(9, 24))
    real = dequantize_fp8_scaled(encoded.weight, encoded.scale)
    assert torch.equal(real, decode_fp8(encoded))
    for shape in ([1], []) if encoded.scale.numel() == 1 else ([9], [9, 1]):
        assert torch.equal(dequantize_fp8_scaled(encoded.weight, encoded.scale.reshape(shape)), real)
    torch.testing.assert_close(real, read_bytes(encoded.weight, "F8_E4M3") * encoded.scale, rtol=1e-6, atol=0)
