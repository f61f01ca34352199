"""The gated delta rule for many rows on a GPU: what chunks of rows do by themselves is done for all of them
at once, and only what needs the state goes chunk by chunk.

The chunkwise form of arXiv 2412.06464, section 3.3, in float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.kernels.gated_delta.reference import BLOCK_ROWS, gated_delta_blocked


def gated_delta_chunked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    state: Tensor,
    commit_rows: int,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over chunks of `BLOCK_ROWS` rows; arguments and result as in `gated_delta`."""
    batch, rows, heads, key_dim = key.shape
    if commit_rows != rows:
        return gated_delta_blocked(query, key, value, log_decay, beta, state, commit_rows)
    query, key, value = (_chunks(tensor) for tensor in (query, key, value))
    log_decay, beta = _chunks(log_decay.unsqueeze(-1)), _chunks(beta.unsqueeze(-1))

    cumulative = log_decay.cumsum(-2)
    from_start, last = cumulative.exp(), cumulative[:, :, -1:]
    # Masked before exp, which could overflow above the diagonal, and after it.
    decay = (cumulative - cumulative.transpose(-1, -2)).tril().exp().tril()
    keys_transposed = key.transpose(-1, -2)
    system = (key @ keys_transposed) * decay * beta
    right_side = torch.cat((value, key * from_start), -1) * beta
    solved = torch.linalg.solve_triangular(system, right_side, upper=False, unitriangular=True)
    moving = state.reshape(batch * heads, key_dim, -1).clone()
    outputs = _scan_for(key, value)(
        solved.contiguous(),
        (query @ keys_transposed) * decay,
        query * from_start,
        key * (last - cumulative).exp(),
        last.exp().contiguous(),
        moving,
    )
    joined = outputs.view(batch, heads, -1, outputs.shape[-1])[:, :, :rows]
    return joined.transpose(1, 2), moving.view_as(state)


def scan_chunks(
    solved: Tensor, pairs: Tensor, query: Tensor, keys_to_end: Tensor, fade: Tensor, state: Tensor
) -> Tensor:
    """Carry the state through the chunks.

    Args:
        solved: [heads, chunks, rows, value_dim + key_dim], what the corrections are without a state, and what
            they see of it: corrections = first - second @ state. The first part is overwritten.
        pairs: [heads, chunks, rows, rows], what each row's output takes of each row's correction.
        query: [heads, chunks, rows, key_dim], with the decay since the chunk's start.
        keys_to_end: [heads, chunks, rows, key_dim], with the decay to the chunk's end.
        fade: [heads, chunks, 1, 1], decay over the chunk.
        state: [heads, key_dim, value_dim], moved.

    Returns:
        Outputs [heads, chunks, rows, value_dim].
    """
    value_dim = state.shape[2]
    own, seen = solved[..., :value_dim], solved[..., value_dim:]
    outputs = torch.empty_like(own)
    for chunk in range(solved.shape[1]):
        corrections = own[:, chunk].baddbmm_(seen[:, chunk], state, alpha=-1)
        torch.bmm(query[:, chunk], state, out=outputs[:, chunk])
        outputs[:, chunk].baddbmm_(pairs[:, chunk], corrections)
        state.mul_(fade[:, chunk]).baddbmm_(keys_to_end[:, chunk].transpose(1, 2), corrections)
    return outputs


def _scan_for(key: Tensor, value: Tensor) -> Callable[..., Tensor]:
    """The kernel on a GPU, for the widths that its matrix products take."""
    widths = (key.shape[-1], value.shape[-1])
    if not key.is_cuda or any(width < 16 or width & (width - 1) for width in widths):
        return scan_chunks
    from draftproof.kernels.gated_delta.triton import scan_chunks as in_one_kernel

    return in_one_kernel


def _chunks(rows: Tensor) -> Tensor:
    """[batch, rows, heads, width] to [batch * heads, chunks, BLOCK_ROWS, width].

    The last chunk is filled up with zeros: such a row has log decay and beta 0 and leaves the state as it is.
    """
    batch, count, heads, width = rows.shape
    padded = F.pad(rows, (0, 0, 0, 0, 0, -count % BLOCK_ROWS))
    # Contiguous in fact: reshape alone gives a view, whose order every product with it would inherit.
    return padded.transpose(1, 2).reshape(batch * heads, -1, BLOCK_ROWS, width).contiguous()
