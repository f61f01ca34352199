"""The gated delta rule in plain torch: row by row (the definition) and in one block (the same, few
operations)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

BLOCK_ROWS = 64
"""Rows that `gated_delta_blocked` handles at once; the triangular system is BLOCK_ROWS square."""


def gated_delta(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    state: Tensor,
    commit_rows: int,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence one row at a time.

    Args:
        query: [batch, rows, value_heads, key_head_dim] float32, normalised and scaled.
        key: [batch, rows, value_heads, key_head_dim] float32, normalised.
        value: [batch, rows, value_heads, value_head_dim] float32.
        log_decay: [batch, rows, value_heads] float32, at most 0.
        beta: [batch, rows, value_heads] float32, in [0, 1].
        state: [batch, value_heads, key_head_dim, value_head_dim] float32; not changed.
        commit_rows: how many leading rows the returned state includes, 0 to `rows`.

    Returns:
        Outputs of every row, [batch, rows, value_heads, value_head_dim], and the state after `commit_rows`
        rows.
    """
    outputs = torch.empty_like(value)
    committed = state
    for row in range(key.shape[1]):
        row_key = key[:, row].unsqueeze(-1)
        state = state * log_decay[:, row].exp()[..., None, None]
        predicted = (state * row_key).sum(-2)
        correction = (value[:, row] - predicted) * beta[:, row].unsqueeze(-1)
        state = state + row_key * correction.unsqueeze(-2)
        outputs[:, row] = (state * query[:, row].unsqueeze(-1)).sum(-2)
        if row + 1 == commit_rows:
            committed = state
    return outputs, committed


def gated_delta_blocked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    state: Tensor,
    commit_rows: int,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence in blocks of rows; same arguments and result as `gated_delta`.

    Inside a block the corrections of all rows solve one unit lower triangular system (the UT transform of
    arXiv 2406.06484 with decay, arXiv 2412.06464 section 3.3), so the number of operations does not grow with
    the number of rows. A block border always falls on `commit_rows`.
    """
    rows = key.shape[1]
    borders = sorted({*range(0, rows, BLOCK_ROWS), *({commit_rows} if rows > BLOCK_ROWS else ()), rows})
    committed = state
    outputs: list[Tensor] = []
    # Heads before rows, so that each head's block is one matrix.
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    log_decay, beta = log_decay.transpose(1, 2), beta.transpose(1, 2)
    for begin, end in pairwise(borders):
        block = slice(begin, end)
        commit_here = commit_rows - begin if begin < commit_rows <= end else None
        output, state, block_committed = _one_block(
            query[:, :, block],
            key[:, :, block],
            value[:, :, block],
            log_decay[:, :, block],
            beta[:, :, block],
            state,
            commit_here,
            end < rows,
        )
        outputs.append(output)
        if block_committed is not None:
            committed = block_committed
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2)
    return joined.transpose(1, 2), committed


def _one_block(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    state: Tensor,
    commit_rows: int | None,
    needs_final: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Outputs, state after the block (only when `needs_final`), state after `commit_rows` rows (if asked
    for)."""
    cumulative = log_decay.cumsum(-1)
    # exp(cumulative_i - cumulative_j) for j <= i, zero above the diagonal (masked first: exp could overflow
    # there)
    decay = (cumulative.unsqueeze(-1) - cumulative.unsqueeze(-2)).tril().exp().tril()
    keys_transposed = key.transpose(-1, -2)
    weight = beta.unsqueeze(-1)
    from_start = cumulative.exp().unsqueeze(-1)
    system = (key @ keys_transposed) * decay * weight
    right_side = (value - (key @ state) * from_start) * weight
    corrections = torch.linalg.solve_triangular(system, right_side, upper=False, unitriangular=True)
    output = (query @ state) * from_start + ((query @ keys_transposed) * decay) @ corrections

    def state_after(count: int) -> Tensor:
        last = cumulative[..., count - 1 : count]
        to_end = (last - cumulative[..., :count]).exp().unsqueeze(-1)
        added = (key[..., :count, :] * to_end).transpose(-1, -2) @ corrections[..., :count, :]
        after: Tensor = state * last.exp().unsqueeze(-1) + added
        return after

    rows = key.shape[-2]
    committed = state_after(commit_rows) if commit_rows else None
    if not needs_final:
        return output, state, committed
    final = committed if commit_rows == rows and committed is not None else state_after(rows)
    return output, final, committed
