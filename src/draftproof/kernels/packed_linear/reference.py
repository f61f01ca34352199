"""Plain torch definition."""

from __future__ import annotations

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
        matrix: W.
        out: [R, rows], with SILU_PAIRS [R, rows / 2], BF16 or float32; rows may have a stride.
        norm: None for none.
        residual: the shape of `out`; may be `out`.
        epilogue: SILU_PAIRS needs a paired matrix.
    """
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
