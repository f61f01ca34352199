"""Root-mean-square normalisation."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


class OffsetRmsNorm:
    """x / rms(x) * (1 + weight): this family stores norm weights as an offset from one.

    Args:
        weight: [width] as stored; kept as float32 with the one added.
        epsilon: added to the mean square.
    """

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        self.scale = weight.float() + 1.0
        self.epsilon = epsilon

    def __call__(self, rows: Tensor) -> Tensor:
        """[..., width] to the same shape and dtype, computed in float32."""
        return F.rms_norm(rows.float(), self.scale.shape, self.scale, self.epsilon).to(rows.dtype)
