"""What every CUDA kernel needs, whatever it is asked for."""

from __future__ import annotations

import torch

from draftproof.kernels.cuda.compiler import is_available

FIRST_CAPABILITY = (9, 0)
"""Bulk copies, clusters and programmatic dependent launch."""


def missing(device: torch.device) -> str | None:
    """Why no CUDA kernel runs on a device, in words, or None."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < FIRST_CAPABILITY:
        return "needs compute capability 9.0"
    return None if is_available() else "cuda-bindings or NVRTC is missing"
