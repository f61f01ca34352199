"""Plain torch definitions of the weight formats that load."""

from __future__ import annotations

import torch
from torch import Tensor

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of the 3 low bits of a 4-bit float; bit 3 is the sign (OCP Microscaling Formats, section
5.3.3)."""

NVFP4_BLOCK = 16
"""Consecutive elements of a row that share one block scale."""


def dequantize_nvfp4(packed: Tensor, block_scale: Tensor, global_scale: Tensor) -> Tensor:
    """ModelOpt NVFP4: value = e2m1 * block_scale * global_scale.

    Args:
        packed: [..., out, in / 2] uint8, low nibble first.
        block_scale: [..., out, in / 16] float8_e4m3fn.
        global_scale: [...] float32 multiplier (`weight_scale_2`; compressed-tensors stores its reciprocal).

    Returns:
        [..., out, in] float32.
    """
    table = torch.tensor(E2M1_VALUES + tuple(-value for value in E2M1_VALUES), device=packed.device)
    codes = torch.stack((packed & 0xF, packed >> 4), -1).flatten(-2)
    values = table[codes.int()].view(*block_scale.shape, NVFP4_BLOCK)
    scale = block_scale.float() * global_scale.float()[..., None, None]
    weight: Tensor = (values * scale.unsqueeze(-1)).flatten(-2)
    return weight


def dequantize_fp8_block(weight: Tensor, scale_inverse: Tensor, block: tuple[int, int]) -> Tensor:
    """Block FP8: value = weight * weight_scale_inv of its block (the name says inverse, the rule is
    multiply).

    Args:
        weight: [out, in] float8_e4m3fn.
        scale_inverse: [ceil(out / block[0]), ceil(in / block[1])] bfloat16 or float32.
        block: rows and columns of a block.

    Returns:
        [out, in] float32.
    """
    rows, columns = weight.shape
    scale = (
        scale_inverse.float()
        .repeat_interleave(block[0], 0)[:rows]
        .repeat_interleave(block[1], 1)[:, :columns]
    )
    return weight.float() * scale


def dequantize_fp8_scaled(weight: Tensor, scale: Tensor) -> Tensor:
    """FP8 with one scale per tensor ([] or [1]) or per output channel ([out] or [out, 1]): value = weight *
    scale."""
    factor = scale.float()
    if factor.numel() > 1:
        factor = factor.reshape(-1, 1)
    return weight.float() * factor
