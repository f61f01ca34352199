"""Which implementation unpacks on a device."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from draftproof.kernels.packed_weights import unpacking
from draftproof.kernels.packed_weights.formats import PackedMatrix

Unpack = Callable[[PackedMatrix, torch.dtype], Tensor]


def unpacker_for(device: torch.device) -> Unpack:
    """The implementation for matrices on `device`: Triton on a GPU, where torch brings it; the definition
    elsewhere."""
    if device.type != "cuda":
        return unpacking.unpack
    unpack: Unpack = importlib.import_module("draftproof.kernels.packed_weights.triton").unpack
    return unpack
