"""Linear projections behind one call, whatever precision their weights keep in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.kernels.dequantize.reference import (
    dequantize_fp8_block,
    dequantize_fp8_scaled,
    dequantize_nvfp4,
)
from draftproof.kernels.half_linear import fbgemm
from draftproof.kernels.packed_weights.formats import PackedMatrix
from draftproof.kernels.packed_weights.select import unpacker_for


class Linear(Protocol):
    """y = x W^T (+ bias)."""

    out_features: int

    def __call__(self, rows: Tensor) -> Tensor:
        """[..., in] to [..., out], in the dtype of `rows`."""
        ...


class DenseLinear:
    """Weight in the compute dtype.

    Kept as [in, out]: for the few rows of a decode step a CPU multiplies twice as fast this way round,
    because it streams the weight once in order.

    Args:
        weight: [out, in].
        bias: [out] or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.columns = weight.t().contiguous()
        self.bias = bias
        self.out_features = weight.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        flat = rows if rows.dim() == 2 else rows.reshape(-1, rows.shape[-1])
        product = (
            torch.mm(flat, self.columns) if self.bias is None else torch.addmm(self.bias, flat, self.columns)
        )
        return product if flat is rows else product.view(*rows.shape[:-1], self.out_features)


class HalfLinear:
    """Weight that half precision holds exactly, packed for few rows; float32 activations.

    Args:
        weight: [out, in] float32, `fbgemm.fits_half`.
        scale: [out] float32 that multiplies each output; None for ones.
    """

    def __init__(self, weight: Tensor, scale: Tensor | None = None) -> None:
        self.packed: Any = fbgemm.pack(weight)
        self.scale = scale
        self.out_features = weight.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        flat = rows if rows.dim() == 2 else rows.reshape(-1, rows.shape[-1])
        product = fbgemm.multiply(flat, self.packed)
        if self.scale is not None:
            product *= self.scale
        return product if flat is rows else product.view(*rows.shape[:-1], self.out_features)


class TiedLinear:
    """lm_head that is the embedding: the same storage, [out, in]."""

    def __init__(self, embedding: Tensor) -> None:
        self.embedding = embedding
        self.out_features = embedding.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.embedding)


class Nvfp4Linear:
    """Weight kept as packed 4-bit floats; real numbers exist only during a call."""

    def __init__(self, packed: Tensor, block_scale: Tensor, global_scale: Tensor) -> None:
        self.packed = packed
        self.block_scale = block_scale
        self.global_scale = global_scale
        self.out_features = packed.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        weight = dequantize_nvfp4(self.packed, self.block_scale, self.global_scale)
        return F.linear(rows, weight.to(rows.dtype))


class Fp8BlockLinear:
    """Weight kept as 8-bit floats with one scale per block."""

    def __init__(self, weight: Tensor, scale_inverse: Tensor, block: tuple[int, int]) -> None:
        self.weight = weight
        self.scale_inverse = scale_inverse
        self.block = block
        self.out_features = weight.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        weight = dequantize_fp8_block(self.weight, self.scale_inverse, self.block)
        return F.linear(rows, weight.to(rows.dtype))


class Fp8ScaledLinear:
    """Weight kept as 8-bit floats with one scale per tensor or per output channel."""

    def __init__(self, weight: Tensor, scale: Tensor) -> None:
        self.weight = weight
        self.scale = scale
        self.out_features = weight.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows, dequantize_fp8_scaled(self.weight, self.scale).to(rows.dtype))


class ParallelLinear:
    """Several projections of one input whose storage differs; outputs side by side."""

    def __init__(self, members: Sequence[Linear]) -> None:
        self.members = tuple(members)
        self.out_features = sum(member.out_features for member in members)

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.cat([member(rows) for member in self.members], -1)


class PackedLinear:
    """Weight in the order of the GPU's matrix units, for prompts: real numbers exist only during a call.

    A step's few rows are multiplied by kernels that read `matrix` itself.

    Args:
        matrix: packed weight; of a pair, the outputs are gate's and then up's.
    """

    def __init__(self, matrix: PackedMatrix) -> None:
        self.matrix = matrix
        self.out_features = matrix.rows
        self._unpack = unpacker_for(matrix.blocks.device)

    def __call__(self, rows: Tensor) -> Tensor:
        bias = self.matrix.bias
        real = None if bias is None else bias[: self.out_features].to(rows.dtype)
        return F.linear(rows, self._unpack(self.matrix, rows.dtype), real)
