"""Linear projections behind one call, whatever precision their weights keep in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.kernels.dequantize.reference import (
    dequantize_fp8_block,
    dequantize_fp8_scaled,
    dequantize_nvfp4,
)


class Linear(Protocol):
    """y = x W^T (+ bias)."""

    out_features: int

    def __call__(self, rows: Tensor) -> Tensor:
        """[..., in] to [..., out], in the dtype of `rows`."""
        ...

    def dense_weight(self) -> Tensor:
        """The weight as real numbers, [out, in], in the compute dtype."""
        ...


class DenseLinear:
    """Weight in the compute dtype.

    Kept as [in, out]: for the few rows of a decode step a CPU multiplies twice as fast this way round, because it
    streams the weight once in order.

    Args:
        weight: [out, in].
        bias: [out] or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.columns = weight.t().contiguous()
        self.bias = bias
        self.out_features = weight.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        product = torch.mm(rows.view(-1, rows.shape[-1]), self.columns)
        if self.bias is not None:
            product = product + self.bias
        return product.view(*rows.shape[:-1], self.out_features)

    def dense_weight(self) -> Tensor:
        return self.columns.t()


class TiedLinear:
    """lm_head that is the embedding: the same storage, [out, in]."""

    def __init__(self, embedding: Tensor) -> None:
        self.embedding = embedding
        self.out_features = embedding.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.embedding)

    def dense_weight(self) -> Tensor:
        return self.embedding


class Nvfp4Linear:
    """Weight kept as packed 4-bit floats; real numbers exist only during a call."""

    def __init__(self, packed: Tensor, block_scale: Tensor, global_scale: Tensor, dtype: torch.dtype) -> None:
        self.packed = packed
        self.block_scale = block_scale
        self.global_scale = global_scale
        self.dtype = dtype
        self.out_features = packed.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.dense_weight())

    def dense_weight(self) -> Tensor:
        return dequantize_nvfp4(self.packed, self.block_scale, self.global_scale).to(self.dtype)


class Fp8BlockLinear:
    """Weight kept as 8-bit floats with one scale per block."""

    def __init__(self, weight: Tensor, scale_inverse: Tensor, block: tuple[int, int], dtype: torch.dtype) -> None:
        self.weight = weight
        self.scale_inverse = scale_inverse
        self.block = block
        self.dtype = dtype
        self.out_features = weight.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.dense_weight())

    def dense_weight(self) -> Tensor:
        return dequantize_fp8_block(self.weight, self.scale_inverse, self.block).to(self.dtype)


class Fp8ScaledLinear:
    """Weight kept as 8-bit floats with one scale per tensor or per output channel."""

    def __init__(self, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> None:
        self.weight = weight
        self.scale = scale
        self.dtype = dtype
        self.out_features = weight.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.dense_weight())

    def dense_weight(self) -> Tensor:
        return dequantize_fp8_scaled(self.weight, self.scale).to(self.dtype)


class ParallelLinear:
    """Several projections of one input whose storage differs; outputs side by side."""

    def __init__(self, members: Sequence[Linear]) -> None:
        self.members = tuple(members)
        self.out_features = sum(member.out_features for member in members)

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.cat([member(rows) for member in self.members], -1)

    def dense_weight(self) -> Tensor:
        return torch.cat([member.dense_weight() for member in self.members])


def join_outputs(members: Sequence[Linear]) -> Linear:
    """One projection that gives all members' outputs: a single matrix when every member is dense."""
    dense = [member for member in members if isinstance(member, DenseLinear)]
    if len(dense) < len(members) or len({member.bias is None for member in dense}) > 1:
        return ParallelLinear(members)
    biases = [member.bias for member in dense if member.bias is not None]
    return DenseLinear(torch.cat([member.dense_weight() for member in dense]), torch.cat(biases) if biases else None)
