"""A norm's weight as the device kernels read it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class NormScale:
    """RMSNorm: x / sqrt(mean(x^2) + epsilon) * weight.

    Attributes:
        weight: [width] float32, the whole factor (1 + stored weight in this family).
        epsilon: added to the mean square.
    """

    weight: Tensor
    epsilon: float
