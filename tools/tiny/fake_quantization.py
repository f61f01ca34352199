"""NVFP4 as training sees it: the value that a stored weight will have, with a straight-through gradient.

Whole stacks of experts at once, on the GPU. `tools.quantization` writes the file; a test holds the two
together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tools.quantization import E2M1_MAX, E4M3_MAX, E4M3_SMALLEST, NVFP4_GROUP


def nvfp4_values(weight: Tensor, share: float = 1.0) -> Tensor:
    """What `weight` [..., out, in] becomes in NVFP4, one global scale a matrix; gradients pass through.

    `share` is how far to go from the weight (0) to its quantised value (1).
    """
    stored = weight.detach()
    largest = stored.abs().amax((-2, -1), keepdim=True).clamp_min(1e-12)
    global_scale = (largest / (E2M1_MAX * E4M3_MAX)).unsqueeze(-1)
    blocks = stored.unflatten(-1, (-1, NVFP4_GROUP))
    scale = blocks.abs().amax(-1, keepdim=True) / E2M1_MAX / global_scale
    scale = scale.clamp(E4M3_SMALLEST, E4M3_MAX).to(torch.float8_e4m3fn).float() * global_scale
    return weight + ((_round_e2m1(blocks / scale) * scale).flatten(-2) - stored) * share


def _round_e2m1(x: Tensor) -> Tensor:
    # Steps of 0.5 below 2, 1 below 4, 2 up to 6; torch.round takes ties to even, as the format does.
    magnitude = x.abs().clamp_max(E2M1_MAX)
    step = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    return torch.round(magnitude / step) * step * x.sign()
