"""Plain torch definition."""

from __future__ import annotations

import torch
from torch import Tensor


def length(rows: Tensor, root_epsilon: Tensor) -> Tensor:
    """sqrt(|x|^2 + root_epsilon^2) over the last dimension, two operations.

    x / sqrt(mean(x^2) + e) is x * sqrt(n) / sqrt(|x|^2 + n e), so with `root_epsilon` = sqrt(n e) this serves
    root-mean-square norms as it serves l2 norms.

    Args:
        rows: [..., width] float32.
        root_epsilon: float32, a scalar or anything that broadcasts to [..., 1].

    Returns:
        [..., 1] float32.
    """
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return length.hypot_(root_epsilon)
