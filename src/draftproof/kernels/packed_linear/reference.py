"""Plain torch definition."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_linear.epilogue import Epilogue
from draftproof.kernels.packed_weights.formats import PackedMatrix
from draftproof.kernels.packed_weights.unpacking import unpack


def packed_linear(
    x: Tensor,
    matrix: PackedMatrix,
    *,
    out: Tensor,
    norm: NormScale | None = None,
    residual: Tensor | None = None,
    epilogue: Epilogue = Epilogue.NONE,
) -> None:
    """out = residual + epilogue(RMSNorm(x) W^T + bias).

    The norm's weight is multiplied in before the product, rounded to the dtype of `x`, and 1 / rms behind
    it, in float32: that is how the kernels do it, because the sum of squares is complete only then.

    Args:
        x: [R, columns] BF16 (any float dtype here); rows may have a stride.
        matrix: W, and the rows of the matrix behind it.
        out: [R, rows], with SILU_PAIRS [R, rows / 2], BF16 or float32; rows may have a stride.
        norm: None for none.
        residual: the shape of `out`; may be `out`.
        epilogue: SILU_PAIRS needs a paired matrix, with none behind it.
    """
    if matrix.behind is not None:
        for part, columns in side_by_side(matrix):
            before = None if residual is None else residual[:, columns]
            packed_linear(x, part, out=out[:, columns], norm=norm, residual=before, epilogue=epilogue)
        return
    rows = x.float()
    if norm is None:
        product = rows @ unpack(matrix, torch.float32).t()
    else:
        weighted = (rows * norm.weight).to(x.dtype).float()
        inverse = torch.rsqrt(rows.square().mean(1, keepdim=True) + norm.epsilon)
        product = (weighted @ unpack(matrix, torch.float32).t()) * inverse
    if matrix.bias is not None:
        product = product + matrix.bias[: matrix.rows]
    if epilogue is Epilogue.SILU_PAIRS:
        gate, up = product.chunk(2, 1)
        product = F.silu(gate) * up
    if residual is not None:
        product = product + residual.float()
    out.copy_(product)


def side_by_side(matrix: PackedMatrix) -> Iterator[tuple[PackedMatrix, slice]]:
    """A matrix and those behind it, each with the columns of `out` that are its own."""
    begin = 0
    for part in matrix.apart:
        yield part, slice(begin, begin + part.rows)
        begin += part.rows
