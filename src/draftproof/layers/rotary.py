"""Rotary position embedding over the leading dimensions of each head.

Multimodal rotary positions are equal on all axes for text, so plain positions give the same angles.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from draftproof.architecture.spec import RotarySpec
from draftproof.errors import UnsupportedRequest
from draftproof.layers.window import AttentionRows


class RotaryEmbedding:
    """Tables of cos and sin for every position; shared by the trunk's attention layers and the MTP head.

    The sin of the leading half is negative, as `rotate_` uses it.

    Args:
        spec: base, width, scaling.
        max_position: number of positions to prepare.
        device: where the tables live.

    Raises:
        UnsupportedRequest: a scaling other than default, linear or yarn.
    """

    def __init__(self, spec: RotarySpec, max_position: int, device: torch.device) -> None:
        frequencies, factor = _inverse_frequencies(spec)
        angles = torch.outer(torch.arange(max_position, dtype=torch.float32), frequencies)
        cos, sin = angles.cos() * factor, angles.sin() * factor
        self.width = spec.dimensions
        self.cos = torch.cat((cos, cos), 1).to(device)
        self.sin = torch.cat((-sin, sin), 1).to(device)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin for [batch, rows] positions, each [batch, rows, 1, width] float32."""
        return self.cos[positions].unsqueeze(2), self.sin[positions].unsqueeze(2)

    def of(self, rows: AttentionRows) -> tuple[Tensor, Tensor]:
        """The same for a window's rows; views of the tables when it has one sequence."""
        if len(rows.starts) > 1:
            return self.at(rows.positions)
        start, end = rows.starts[0], rows.starts[0] + rows.rows
        return self.cos[start:end].unsqueeze(1), self.sin[start:end].unsqueeze(1)


def rotate_(heads: Tensor, angles: tuple[Tensor, Tensor]) -> None:
    """Rotate the leading `width` dimensions of [batch, rows, heads, head_dim] in place; the rest stays."""
    cos, sin = angles
    width = cos.shape[-1]
    turning = heads.narrow(-1, 0, width)
    swapped = turning.roll(width // 2, -1)
    if heads.dtype is torch.float32:
        turning.mul_(cos).addcmul_(swapped, sin)
    else:
        turning.copy_(torch.addcmul(turning * cos, swapped, sin))


def _inverse_frequencies(spec: RotarySpec) -> tuple[Tensor, float]:
    exponents = torch.arange(0, spec.dimensions, 2, dtype=torch.float32) / spec.dimensions
    plain = 1.0 / (spec.theta**exponents)
    if spec.scaling == "default":
        return plain, 1.0
    if spec.scaling == "linear":
        return plain / spec.factor, 1.0
    if spec.scaling == "yarn":
        return _yarn(spec, plain)
    raise UnsupportedRequest(
        f"rope scaling {spec.scaling!r} is not implemented", "Implemented: default, linear, yarn."
    )


def _yarn(spec: RotarySpec, plain: Tensor) -> tuple[Tensor, float]:
    """NTK-by-parts interpolation and attention temperature (YaRN, arXiv 2309.00071, sections 3.2 and 3.4)."""
    native = spec.original_max_position or 1

    def dimension_of(rotations: float) -> float:
        return spec.dimensions * math.log(native / (rotations * 2 * math.pi)) / (2 * math.log(spec.theta))

    low = max(math.floor(dimension_of(spec.beta_fast)), 0)
    high = min(math.ceil(dimension_of(spec.beta_slow)), spec.dimensions - 1)
    ramp = (torch.arange(spec.dimensions // 2, dtype=torch.float32) - low) / max(high - low, 0.001)
    keep = 1.0 - ramp.clamp(0, 1)
    frequencies = plain / spec.factor * (1 - keep) + plain * keep
    derived = 0.1 * math.log(spec.factor) + 1.0 if spec.factor > 1 else 1.0
    return frequencies, spec.attention_factor if spec.attention_factor is not None else derived
