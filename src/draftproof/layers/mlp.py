"""Gated MLP."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from draftproof.layers.linear import Linear


@dataclass(frozen=True)
class GatedMlp:
    """down(silu(gate(x)) * up(x)); `gate_up` gives gate and up side by side."""

    gate_up: Linear
    down: Linear

    def __call__(self, hidden: Tensor) -> Tensor:
        """[..., hidden] to the same."""
        gate, up = self.gate_up(hidden).chunk(2, -1)
        return self.down(F.silu(gate) * up)
