"""Half-precision weights through FBGEMM, which torch carries on x86."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

HALF_STEP = 2.0**-24
"""Distance of neighbouring half-precision numbers around zero."""


def is_available() -> bool:
    """Whether this build of torch has the op and this processor can run it."""
    return hasattr(torch, "fbgemm_linear_fp16_weight_fp32_activation") and "fbgemm" in set(
        torch.backends.quantized.supported_engines
    )


def fits_half(weight: Tensor) -> bool:
    """Whether half precision holds these float32 numbers exactly.

    Numbers below the smallest normal half (6e-5) may lose up to half a step (3e-8): less than float32
    rounding takes from a dot product with any weight of ordinary size.
    """
    return bool(((weight.half().float() - weight).abs() <= HALF_STEP / 2).all())


def pack(weight: Tensor) -> Any:
    """[out, in] float32 that `fits_half` to the op's own layout."""
    with warnings.catch_warnings():
        # torch announces the removal of this op; `is_available` will notice when it is gone.
        warnings.simplefilter("ignore", UserWarning)
        packed = torch.fbgemm_pack_gemm_matrix_fp16(weight.contiguous())
        multiply(torch.zeros(1, weight.shape[1]), packed)
    return packed


def multiply(rows: Tensor, packed: Any) -> Tensor:
    """[rows, in] float32 times a packed weight: [rows, out] float32. A row's result does not depend on the
    others."""
    product: Tensor = torch.fbgemm_linear_fp16_weight_fp32_activation(rows, packed, None)
    return product
