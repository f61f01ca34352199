"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.kernels.norm.reference import length


class OffsetRmsNorm:
    """x / rms(x) * (1 + weight): this family stores norm weights as an offset from one.

    Args:
        weight: [width] as stored.
        epsilon: added to the mean square.

    Attributes:
        scale: [width] float32, (1 + weight) * sqrt(width).
        root_epsilon: scalar tensor, sqrt(epsilon * width).
    """

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        width = weight.shape[0]
        # Spelled out in four operations, because torch's own function costs twice as much for the few rows of
        # a decode step on a CPU.
        self.scale = (weight.float() + 1.0) * width**0.5
        self.root_epsilon = torch.tensor((epsilon * width) ** 0.5, device=weight.device)

    def __call__(self, rows: Tensor) -> Tensor:
        """[..., width] to the same shape and dtype, computed in float32."""
        if rows.dtype is torch.float32:
            return (rows / length(rows, self.root_epsilon)).mul_(self.scale)
        wide = rows.float()
        return (wide / length(wide, self.root_epsilon)).mul_(self.scale).to(rows.dtype)
