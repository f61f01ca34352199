"""Root-mean-square normalisation."""

from __future__ import annotations

from torch import Tensor


class OffsetRmsNorm:
    """x / rms(x) * (1 + weight): this family stores norm weights as an offset from one.

    Args:
        weight: [width] as stored.
        epsilon: added to the mean square.
    """

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        width = weight.shape[0]
        # x / sqrt(sum / n + e) = x * sqrt(n) / sqrt(sum + n e): the division by n moves into constants. Spelled out
        # because torch's own function costs three times as much for the few rows of a decode step on a CPU.
        self._scale = (weight.float() + 1.0) * width**0.5
        self._epsilon = epsilon * width

    def __call__(self, rows: Tensor) -> Tensor:
        """[..., width] to the same shape and dtype, computed in float32."""
        wide = rows.float()
        inverse = (wide * wide).sum(-1, keepdim=True).add_(self._epsilon).rsqrt_()
        return (wide * inverse).mul_(self._scale).to(rows.dtype)
