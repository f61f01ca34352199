"""The gated delta rule for many rows on a GPU: what chunks of rows do by themselves is done for all of them
at once, and only what needs the state goes chunk by chunk, with few operations.

The chunkwise form of arXiv 2412.06464, section 3.3, in float32 and plain torch.
"""

from __future__ import annotations

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
    batch, rows, heads, _ = key.shape
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
    # corrections = own - seen @ state: the same triangular system for both.
    right_side = torch.cat((value, key * from_start), -1) * beta
    solved = torch.linalg.solve_triangular(system, right_side, upper=False, unitriangular=True)
    own, seen = solved.split((value.shape[-1], key.shape[-1]), -1)
    pairs = (query @ keys_transposed) * decay
    query = query * from_start
    keys_to_end = (key * (last - cumulative).exp()).transpose(-1, -2)

    moving = state.reshape(batch * heads, *state.shape[2:]).clone()
    outputs = torch.empty_like(value)
    for chunk, fade in enumerate(last.exp().unbind(1)):
        corrections = own[:, chunk].baddbmm_(seen[:, chunk], moving, alpha=-1)
        torch.bmm(query[:, chunk], moving, out=outputs[:, chunk])
        outputs[:, chunk].baddbmm_(pairs[:, chunk], corrections)
        moving.mul_(fade).baddbmm_(keys_to_end[:, chunk], corrections)
    joined = outputs.view(batch, heads, -1, outputs.shape[-1])[:, :, :rows]
    return joined.transpose(1, 2), moving.view_as(state)


def _chunks(rows: Tensor) -> Tensor:
    """[batch, rows, heads, width] to [batch * heads, chunks, BLOCK_ROWS, width].

    The last chunk is filled up with zeros: such a row has log decay and beta 0 and leaves the state as it is.
    """
    batch, count, heads, width = rows.shape
    padded = F.pad(rows, (0, 0, 0, 0, 0, -count % BLOCK_ROWS))
    return padded.transpose(1, 2).reshape(batch * heads, -1, BLOCK_ROWS, width)
