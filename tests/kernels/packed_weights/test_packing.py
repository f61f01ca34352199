"""A packed matrix means the numbers that were packed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from draftproof.errors import UnsupportedRequest
from draftproof.kernels.packed_weights.formats import BLOCK_BYTES, PackedMatrix, WeightFormat
from draftproof.kernels.packed_weights.packing import (
    concatenate,
    pack_dense,
    pack_experts,
    pack_fp8,
    pack_fp8_blocks,
    pack_int8,
    pack_nvfp4,
    pair_gate_up,
    stack,
)
from draftproof.kernels.packed_weights.triton import unpack as unpack_in_triton
from draftproof.kernels.packed_weights.unpacking import unpack
from tools.quantization import (
    decode_fp8,
    decode_fp8_block,
    decode_nvfp4,
    encode_fp8_block,
    encode_fp8_channel,
    encode_fp8_tensor,
    encode_nvfp4,
)

SHAPES = [(16, 128), (48, 256), (33, 144), (257, 80), (1, 16)]
FORMATS = list(WeightFormat)


def random_weight(rows: int, columns: int, seed: int = 0) -> Tensor:
    """Rows of very different sizes, some zeros, one block of zeros."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator)
    weight *= torch.exp2(torch.randint(-6, 3, (rows, 1), generator=generator))
    weight[torch.rand(rows, columns, generator=generator) < 0.1] = 0
    weight[0, :16] = 0
    return weight


def packed_and_meant(
    kept_as: WeightFormat, rows: int, columns: int, seed: int = 0
) -> tuple[PackedMatrix, Tensor]:
    """A random matrix packed, and the same by the encoders' own decoders."""
    weight = random_weight(rows, columns, seed)
    if kept_as is WeightFormat.BF16:
        return pack_dense(weight), weight.bfloat16().float()
    if kept_as is WeightFormat.FP8:
        encoded = encode_fp8_channel(weight)
        return pack_fp8(encoded.weight, encoded.scale), decode_fp8(encoded)
    if kept_as is WeightFormat.INT8:
        groups = torch.nn.functional.pad(weight, (0, -columns % 128)).view(rows, -1, 128)
        step = groups.abs().amax(-1, keepdim=True) / 127
        meant = (groups / step.clamp(min=1e-30)).round() * step
        return pack_int8(weight), meant.view(rows, -1)[:, :columns]
    nvfp4 = encode_nvfp4(weight)
    return pack_nvfp4(nvfp4.packed, nvfp4.block_scale, nvfp4.global_scale), decode_nvfp4(nvfp4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kept_as", FORMATS)
def test_unpacking_gives_what_was_packed(kept_as: WeightFormat, shape: tuple[int, int]) -> None:
    matrix, meant = packed_and_meant(kept_as, *shape)
    assert matrix.blocks.shape[-1] == BLOCK_BYTES[kept_as]
    torch.testing.assert_close(unpack(matrix, torch.float32), meant, rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [(256, 256), (130, 200), (16, 128)])
def test_block_scales_of_fp8(shape: tuple[int, int]) -> None:
    encoded = encode_fp8_block(random_weight(*shape))
    matrix = pack_fp8_blocks(encoded.weight, encoded.scale)
    assert torch.equal(unpack(matrix, torch.float32), decode_fp8_block(encoded))


def test_fp8_with_one_scale() -> None:
    encoded = encode_fp8_tensor(random_weight(33, 80))
    assert torch.equal(unpack(pack_fp8(encoded.weight, encoded.scale), torch.float32), decode_fp8(encoded))


def test_other_block_sizes_are_refused() -> None:
    encoded = encode_fp8_block(random_weight(64, 64), (32, 32))
    with pytest.raises(UnsupportedRequest, match="blocks of 128 x 128 have"):
        pack_fp8_blocks(encoded.weight, encoded.scale)


def test_every_pair_of_nvfp4_codes_survives() -> None:
    packed = torch.arange(256, dtype=torch.uint8).repeat(16, 4)
    scale = torch.full((16, 128), 1.0).to(torch.float8_e4m3fn)
    values = unpack(pack_nvfp4(packed, scale, torch.tensor(1.0)), torch.float32)
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    codes = torch.stack((packed & 15, packed >> 4), -1).flatten(1).long()
    assert torch.equal(values, table[codes])


def test_every_nvfp4_scale_survives() -> None:
    scale = (
        torch.arange(0x7F, dtype=torch.uint8).repeat(16, 1)[:, :120].contiguous().view(torch.float8_e4m3fn)
    )
    packed = torch.full((16, 120 * 8), 0x22, dtype=torch.uint8)
    values = unpack(pack_nvfp4(packed, scale, torch.tensor(1.0)), torch.float32)
    assert torch.equal(values, scale.float().repeat_interleave(16, 1))


def test_nvfp4_global_scales_may_differ_by_row() -> None:
    encoded = encode_nvfp4(random_weight(32, 64))
    by_row = torch.linspace(0.5, 2, 32)
    matrix = pack_nvfp4(encoded.packed, encoded.block_scale, by_row)
    meant = decode_nvfp4(encoded) / encoded.global_scale * by_row[:, None]
    torch.testing.assert_close(unpack(matrix, torch.float32), meant, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kept_as", FORMATS)
def test_side_by_side(kept_as: WeightFormat) -> None:
    members = [packed_and_meant(kept_as, rows, 144, seed) for seed, rows in enumerate((32, 16, 7))]
    joined = concatenate([matrix for matrix, _ in members])
    assert joined.rows == 55
    torch.testing.assert_close(
        unpack(joined, torch.float32), torch.cat([meant for _, meant in members]), rtol=1e-6, atol=0
    )


def test_side_by_side_keeps_biases_apart() -> None:
    joined = concatenate([pack_dense(torch.ones(16, 32)), pack_dense(torch.ones(3, 32), torch.ones(3))])
    assert joined.bias is not None
    assert joined.bias.tolist() == [0.0] * 16 + [1.0] * 3 + [0.0] * 13


def test_a_member_that_ends_within_a_tile_is_refused() -> None:
    with pytest.raises(UnsupportedRequest, match="do not end at a multiple of 16"):
        concatenate([pack_dense(torch.ones(17, 32)), pack_dense(torch.ones(16, 32))])


def test_members_of_different_formats_are_refused() -> None:
    with pytest.raises(UnsupportedRequest, match="side by side"):
        concatenate([pack_dense(torch.ones(16, 32)), pack_int8(torch.ones(16, 32))])


@pytest.mark.parametrize("width", [16, 40, 8, 13])
@pytest.mark.parametrize("kept_as", FORMATS)
def test_gate_and_up_share_tiles(kept_as: WeightFormat, width: int) -> None:
    gate, meant_gate = packed_and_meant(kept_as, width, 144, 1)
    up, meant_up = packed_and_meant(kept_as, width, 144, 2)
    pair = pair_gate_up(gate, up)
    assert pair.blocks.shape[0] == -(-width // 8)
    torch.testing.assert_close(
        unpack(pair, torch.float32), torch.cat((meant_gate, meant_up)), rtol=1e-6, atol=0
    )


def test_a_paired_tile_is_eight_rows_of_each() -> None:
    gate, up = random_weight(24, 32, 1).bfloat16(), random_weight(24, 32, 2).bfloat16()
    pair = pair_gate_up(pack_dense(gate), pack_dense(up))
    tile = pair.blocks[1, 0].view(torch.bfloat16).view(16, 32)
    assert torch.equal(tile, torch.cat((gate[8:16], up[8:16])))


def test_gate_and_up_with_block_scales() -> None:
    gate, up = (encode_fp8_block(random_weight(136, 256, seed)) for seed in (1, 2))
    pair = pair_gate_up(*(pack_fp8_blocks(part.weight, part.scale) for part in (gate, up)))
    meant = torch.cat((decode_fp8_block(gate), decode_fp8_block(up)))
    assert torch.equal(unpack(pair, torch.float32), meant)


@pytest.mark.parametrize("kept_as", FORMATS)
def test_experts_are_packed_together_as_one_by_one(kept_as: WeightFormat) -> None:
    experts, hidden, width = 3, 144, 32
    parts = [
        [packed_and_meant(kept_as, *shape, seed=3 * expert + part)[0] for expert in range(experts)]
        for part, shape in enumerate(((width, hidden), (width, hidden), (hidden, width)))
    ]
    packed = pack_experts(*(stack(part) for part in parts))
    assert packed.experts == experts
    for expert in range(experts):
        pair = pair_gate_up(parts[0][expert], parts[1][expert])
        assert torch.equal(packed.gate_up[expert], pair.blocks)
        assert torch.equal(packed.down[expert], parts[2][expert].blocks)
        if pair.row_scale is not None:
            assert packed.gate_up_scale is not None
            assert torch.equal(packed.gate_up_scale[expert], pair.row_scale)


def test_a_leading_dimension_packs_as_its_members_do() -> None:
    encoded = [encode_nvfp4(random_weight(24, 64, seed)) for seed in range(3)]
    together = pack_nvfp4(
        torch.stack([part.packed for part in encoded]),
        torch.stack([part.block_scale for part in encoded]),
        torch.stack([part.global_scale for part in encoded]),
    )
    apart = stack([pack_nvfp4(part.packed, part.block_scale, part.global_scale) for part in encoded])
    assert torch.equal(together.blocks, apart.blocks)
    assert together.row_scale is not None
    assert apart.row_scale is not None
    assert torch.equal(together.row_scale, apart.row_scale)


def test_int8_is_within_half_a_step() -> None:
    weight = random_weight(20, 300)
    error = (unpack(pack_int8(weight), torch.float32) - weight).abs()
    groups = torch.nn.functional.pad(weight, (0, 84)).view(20, 3, 128).abs().amax(-1)
    limit = (groups / 127 / 2).repeat_interleave(128, 1)[:, :300]
    assert bool((error <= limit * 1.0001 + 1e-12).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kept_as", FORMATS)
def test_triton_unpacks_the_same(kept_as: WeightFormat, dtype: torch.dtype) -> None:
    gate, _ = packed_and_meant(kept_as, 40, 144, 1)
    up, _ = packed_and_meant(kept_as, 40, 144, 2)
    for matrix in (gate, pair_gate_up(gate, up)):
        torch.testing.assert_close(unpack_in_triton(matrix, dtype), unpack(matrix, dtype), rtol=1e-6, atol=0)


def test_triton_unpacks_block_scales() -> None:
    gate, up = (encode_fp8_block(random_weight(136, 256, seed)) for seed in (1, 2))
    packed = [pack_fp8_blocks(part.weight, part.scale) for part in (gate, up)]
    for matrix in (packed[0], pair_gate_up(*packed)):
        assert torch.equal(unpack_in_triton(matrix, torch.float32), unpack(matrix, torch.float32))
