"""From stored matrices to the projections that a target asks for: several matrices of one input as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.kernels.half_linear import fbgemm
from draftproof.layers.linear import DenseLinear, HalfLinear, Linear, ParallelLinear, TiedLinear
from draftproof.models.account import TensorAccount
from draftproof.models.packed import packed_pair, packed_projection
from draftproof.models.stored_linear import DenseBackend, LoadTarget, Matrix, Stored, read_matrix


def load_linear(account: TensorAccount, module: str, shape: tuple[int, int], target: LoadTarget) -> Linear:
    """Load one projection; see `read_matrix`."""
    return join([read_matrix(account, module, shape, target)], target)


def join(members: Sequence[Stored], target: LoadTarget) -> Linear:
    """One projection that gives the outputs of all members side by side."""
    if target.backend is DenseBackend.PACKED_BLOCKS:
        return packed_projection(members)
    matrices = [member for member in members if isinstance(member, Matrix)]
    if len(matrices) < len(members):
        alone = [join([member], target) if isinstance(member, Matrix) else member for member in members]
        return alone[0] if len(alone) == 1 else ParallelLinear(alone)
    values = torch.cat([matrix.values for matrix in matrices])
    scale = _side_by_side([(matrix.scale, matrix.values, 1.0) for matrix in matrices])
    bias = _side_by_side([(matrix.bias, matrix.values, 0.0) for matrix in matrices])
    if target.backend is DenseBackend.FBGEMM_HALF and bias is None and fbgemm.fits_half(values):
        return HalfLinear(values, scale)
    if scale is not None:
        values = values * scale.unsqueeze(1)
    return DenseLinear(values.to(target.dtype), None if bias is None else bias.to(target.dtype))


def join_pair(gate: Stored, up: Stored, target: LoadTarget) -> Linear:
    """Gate and up of a gated MLP as one projection, gate's outputs first."""
    if target.backend is DenseBackend.PACKED_BLOCKS:
        return packed_pair(gate, up)
    return join([gate, up], target)


def tied_head(embedding: Tensor, target: LoadTarget) -> Linear:
    """The output head of a model that has no other than its embedding, [vocabulary, hidden].

    Packed blocks are a second copy: rows are looked up in the one, multiplied by the other.
    """
    if target.backend is DenseBackend.PACKED_BLOCKS:
        return packed_projection([Matrix(embedding)])
    return TiedLinear(embedding)


def _side_by_side(parts: Sequence[tuple[Tensor | None, Tensor, float]]) -> Tensor | None:
    """Per-output vectors of several matrices as one, with a neutral value where a matrix has none."""
    if all(vector is None for vector, _, _ in parts):
        return None
    vectors = [
        values.new_full((values.shape[0],), neutral) if vector is None else vector
        for vector, values, neutral in parts
    ]
    return torch.cat(vectors)
