"""Programmatic dependent launch of Triton kernels: a kernel may start while the one before it drains.

A kernel calls `gdc_launch_dependents` first, which lets the next one start, and must call `gdc_wait` before
it touches anything that another kernel wrote or reads. It does so under a constexpr, because older GPUs and
the interpreter know no such instructions.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

FIRST_CAPABILITY = 9


def has_dependent_launch(tensor: Tensor) -> bool:
    """Whether kernels on this tensor's device may be launched so."""
    return tensor.is_cuda and _of_device(tensor.device.index or 0)


@functools.cache
def _of_device(index: int) -> bool:
    return torch.cuda.get_device_capability(index)[0] >= FIRST_CAPABILITY
