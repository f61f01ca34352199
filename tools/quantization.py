"""Encoders of the precisions that draftproof loads: NVFP4 (two dialects) and FP8 (three granularities).

They write test checkpoints and the embedded one. The decoders beside them exist to test the encoders; the
engine has its own, and the two must never be the same code.

Every encoder takes a float32 weight [out, in] and rounds to nearest, ties to even. A block or tensor of zeros
gets the scale 1, so that a scale of zero in a file is always a fault.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

E2M1_MAX = 6.0
E4M3_MAX = 448.0
E4M3_SMALLEST = 2.0**-9
NVFP4_GROUP = 16

_E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Midpoints between neighbouring values. At a tie the even code wins, so a midpoint below an even code counts
# as reached and one below an odd code does not.
_TIES_DOWN = (0.25, 1.25, 2.5, 5.0)
_TIES_UP = (0.75, 1.75, 3.5)


class Nvfp4Weight(NamedTuple):
    """ModelOpt's NVFP4: value = e2m1 * block_scale * global_scale.

    Attributes:
        packed: uint8 [out, in/2]; the low nibble is the even column.
        block_scale: float8_e4m3fn [out, in/16] (`weight_scale` on disk).
        global_scale: float32 scalar (`weight_scale_2` on disk).
    """

    packed: Tensor
    block_scale: Tensor
    global_scale: Tensor


class CompressedNvfp4Weight(NamedTuple):
    """compressed-tensors' NVFP4: value = e2m1 * weight_scale / weight_global_scale.

    Attributes:
        weight_packed: uint8 [out, in/2]; the low nibble is the even column.
        weight_scale: float8_e4m3fn [out, in/16].
        weight_global_scale: float32 [1], a divisor: the reciprocal of ModelOpt's `weight_scale_2`.
    """

    weight_packed: Tensor
    weight_scale: Tensor
    weight_global_scale: Tensor


class Fp8Weight(NamedTuple):
    """FP8: value = weight * scale, whatever the scale is called on disk.

    Attributes:
        weight: float8_e4m3fn [out, in].
        scale: per block [ceil(out/rows), ceil(in/columns)], per tensor [], or per channel [out, 1].
    """

    weight: Tensor
    scale: Tensor


def encode_nvfp4(weight: Tensor, global_scale: Tensor | None = None) -> Nvfp4Weight:
    """Encodes a weight in ModelOpt's NVFP4.

    Args:
        weight: float32 [out, in], `in` a multiple of 16, finite.
        global_scale: float32 scalar shared with other weights (gate and up of one MLP); None takes
            amax / (6 * 448) of this weight.

    Raises:
        ValueError: the shape does not divide, or a value is not finite.
    """
    rows, columns = _check_matrix(weight)
    if columns % NVFP4_GROUP:
        raise ValueError(f"NVFP4 needs a multiple of {NVFP4_GROUP} columns, not {columns}")
    if global_scale is None:
        global_scale = nvfp4_global_scale(weight)
    blocks = weight.reshape(rows, columns // NVFP4_GROUP, NVFP4_GROUP)
    block_scale = _to_e4m3_scale(blocks.abs().amax(dim=-1) / E2M1_MAX / global_scale)
    scaled = blocks / (block_scale.float() * global_scale).unsqueeze(-1)
    codes = _encode_e2m1(scaled).reshape(rows, columns)
    return Nvfp4Weight(codes[:, 0::2] | (codes[:, 1::2] << 4), block_scale, global_scale)


def nvfp4_global_scale(*weights: Tensor) -> Tensor:
    """The global scale that all given weights can share: amax / (6 * 448), or 1 when all are zero.

    Returns:
        A float32 scalar.
    """
    largest = torch.stack([weight.abs().amax().float() for weight in weights]).amax()
    return _positive(largest / (E2M1_MAX * E4M3_MAX), largest)


def encode_nvfp4_compressed(weight: Tensor, global_scale: Tensor | None = None) -> CompressedNvfp4Weight:
    """Encodes a weight in compressed-tensors' NVFP4; arguments and errors as `encode_nvfp4`.

    `global_scale` is the multiplicative one here too; the divisor that the dialect stores is its reciprocal.
    """
    encoded = encode_nvfp4(weight, global_scale)
    return CompressedNvfp4Weight(
        encoded.packed, encoded.block_scale, encoded.global_scale.reciprocal().reshape(1)
    )


def encode_fp8_block(
    weight: Tensor, block: tuple[int, int] = (128, 128), scale_dtype: torch.dtype = torch.float32
) -> Fp8Weight:
    """Encodes a weight in block FP8, the scheme of the official FP8 releases.

    Args:
        weight: float32 [out, in], any size; blocks at the edges may be partial.
        block: rows and columns that share one scale.
        scale_dtype: dtype of `scale`, `weight_scale_inv` on disk (BF16 in official releases).

    Returns:
        The weight and scales [ceil(out/rows), ceil(in/columns)]; value = weight * scale.
    """
    rows, columns = _check_matrix(weight)
    block_rows, block_columns = block
    grid = (-(-rows // block_rows), -(-columns // block_columns))
    padded = weight.new_zeros(grid[0] * block_rows, grid[1] * block_columns)
    padded[:rows, :columns] = weight
    amax = padded.reshape(grid[0], block_rows, grid[1], block_columns).abs().amax(dim=(1, 3))
    scale = _fp8_scale(amax, scale_dtype)
    return Fp8Weight(_to_e4m3(weight / _spread(scale, block, rows, columns)), scale)


def encode_fp8_tensor(weight: Tensor) -> Fp8Weight:
    """Encodes a weight in FP8 with one float32 scale [] (ModelOpt's FP8)."""
    _check_matrix(weight)
    scale = _fp8_scale(weight.abs().amax(), torch.float32)
    return Fp8Weight(_to_e4m3(weight / scale), scale)


def encode_fp8_channel(weight: Tensor, scale_dtype: torch.dtype = torch.float32) -> Fp8Weight:
    """Encodes a weight in FP8 with one scale an output row, [out, 1] (compressed-tensors' FP8)."""
    _check_matrix(weight)
    scale = _fp8_scale(weight.abs().amax(dim=1, keepdim=True), scale_dtype)
    return Fp8Weight(_to_e4m3(weight / scale.float()), scale)


def decode_nvfp4(encoded: Nvfp4Weight) -> Tensor:
    """Returns the float32 [out, in] that a ModelOpt NVFP4 weight stands for."""
    scale = encoded.block_scale.float().repeat_interleave(NVFP4_GROUP, dim=1)
    return _decode_e2m1(encoded.packed) * scale * encoded.global_scale


def decode_nvfp4_compressed(encoded: CompressedNvfp4Weight) -> Tensor:
    """Returns the float32 [out, in] that a compressed-tensors NVFP4 weight stands for."""
    scale = encoded.weight_scale.float().repeat_interleave(NVFP4_GROUP, dim=1)
    return _decode_e2m1(encoded.weight_packed) * scale / encoded.weight_global_scale


def decode_fp8_block(encoded: Fp8Weight, block: tuple[int, int] = (128, 128)) -> Tensor:
    """Returns the float32 [out, in] that a block FP8 weight stands for."""
    rows, columns = encoded.weight.shape
    return encoded.weight.float() * _spread(encoded.scale, block, rows, columns)


def decode_fp8(encoded: Fp8Weight) -> Tensor:
    """Returns the float32 [out, in] that a per-tensor or per-channel FP8 weight stands for."""
    return encoded.weight.float() * encoded.scale.float()


def _check_matrix(weight: Tensor) -> tuple[int, int]:
    if weight.dim() != 2 or weight.dtype != torch.float32:
        raise ValueError(f"expected a float32 matrix, got {weight.dtype} {list(weight.shape)}")
    if not torch.isfinite(weight).all():
        raise ValueError("the weight has values that are not finite")
    return weight.shape[0], weight.shape[1]


def _encode_e2m1(values: Tensor) -> Tensor:
    """Codes 0..15 (uint8, sign in bit 3) of the nearest E2M1 values; magnitudes above 6 saturate."""
    magnitude = values.abs()
    code = torch.signbit(values).to(torch.uint8) << 3
    for midpoint in _TIES_DOWN:
        code += magnitude > midpoint
    for midpoint in _TIES_UP:
        code += magnitude >= midpoint
    return code


def _decode_e2m1(packed: Tensor) -> Tensor:
    table = torch.tensor(_E2M1_VALUES + tuple(-value for value in _E2M1_VALUES))
    codes = torch.stack([packed & 0x0F, packed >> 4], dim=-1).reshape(packed.shape[0], -1)
    return table[codes.long()]


def _to_e4m3(values: Tensor) -> Tensor:
    # The cast itself turns overflow into NaN; a scale rounded down may put the largest value just above 448.
    return values.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def _to_e4m3_scale(scale: Tensor) -> Tensor:
    """Positive scales as float8_e4m3fn: zero becomes 1, what would underflow the smallest subnormal."""
    clamped = scale.clamp(E4M3_SMALLEST, E4M3_MAX)
    return torch.where(scale > 0, clamped, torch.ones_like(scale)).to(torch.float8_e4m3fn)


def _fp8_scale(amax: Tensor, dtype: torch.dtype) -> Tensor:
    return _positive(amax / E4M3_MAX, amax).to(dtype)


def _positive(scale: Tensor, amax: Tensor) -> Tensor:
    """The scale, but 1 where amax is zero and never so small that its reciprocal is infinite."""
    return torch.where(amax > 0, scale.clamp(min=torch.finfo(torch.float32).tiny), torch.ones_like(scale))


def _spread(scale: Tensor, block: tuple[int, int], rows: int, columns: int) -> Tensor:
    """One scale an element, float32 [rows, columns]."""
    spread = scale.float().repeat_interleave(block[0], dim=0).repeat_interleave(block[1], dim=1)
    return spread[:rows, :columns]
