"""Matrices encoded by the tools and packed, by format."""

from __future__ import annotations

from torch import Tensor

from draftproof.kernels.packed_weights.formats import PackedMatrix
from draftproof.kernels.packed_weights.packing import pack_fp8, pack_fp8_blocks, pack_nvfp4
from tools.quantization import encode_fp8_block, encode_fp8_channel, encode_nvfp4


def fp8(weight: Tensor) -> PackedMatrix:
    """A scale a row."""
    encoded = encode_fp8_channel(weight)
    return pack_fp8(encoded.weight, encoded.scale)


def fp8_blocks(weight: Tensor) -> PackedMatrix:
    """A scale a block of 128 x 128."""
    encoded = encode_fp8_block(weight)
    return pack_fp8_blocks(encoded.weight, encoded.scale)


def nvfp4(weight: Tensor) -> PackedMatrix:
    """A scale a block of 16 inputs, and one for all."""
    encoded = encode_nvfp4(weight)
    return pack_nvfp4(encoded.packed, encoded.block_scale, encoded.global_scale)
