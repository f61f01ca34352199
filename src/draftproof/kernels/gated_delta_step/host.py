"""The window step with few operations, for the few rows of a decode step on a CPU.

There the time goes into starting operations, not into arithmetic. So all rows, replayed and new, queries and keys,
go through the same few products; decays between rows are one product with a constant table; the state is changed in
place; and factors that cancel are left out.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.kernels.gated_delta_step import reference
from draftproof.kernels.gated_delta_step.reference import (
    GatedDeltaParameters,
    RecurrentState,
    WindowRows,
    replay_rows,
)
from draftproof.kernels.norm.reference import length

FEW_ROWS = 16
"""Most replayed and new rows together; the table of decays grows with their cube."""


def gated_delta_step(
    inputs: Tensor,
    gate: Tensor,
    a: Tensor,
    b: Tensor,
    parameters: GatedDeltaParameters,
    state: RecurrentState,
    window: WindowRows,
) -> Tensor:
    """Advance one layer over a window; arguments, result and effect as in the reference."""
    batch, rows, width = inputs.shape
    replayed = max(window.pending)
    total = replayed + rows
    if total > FEW_ROWS:
        return reference.gated_delta_step(inputs, gate, a, b, parameters, state, window)
    log_decay = F.softplus(_wide(a) + parameters.dt_bias).mul_(parameters.negative_a)
    beta = _wide(b).sigmoid()
    if window.valid is not None:
        # A padded row must not touch the state.
        log_decay = log_decay * window.valid.unsqueeze(-1)
        beta = beta * window.valid.unsqueeze(-1)
    columns, all_log_decay, all_beta = _with_replayed(inputs, log_decay, beta, state, window)
    mixed = _convolve(columns, batch, total, width, parameters.folded.taps)
    if total == 1 and window.commits_all:
        output = _one_row(mixed, all_log_decay, all_beta, parameters, state, window)
    else:
        output = _several_rows(mixed, all_log_decay, all_beta, rows, parameters, state, window)
    _write_rows(columns, inputs, log_decay, beta, state, window)
    return _gated_norm(output, gate, parameters, inputs.dtype)


def _wide(rows: Tensor) -> Tensor:
    """In float32; a call less when it is."""
    return rows if rows.dtype is torch.float32 else rows.float()


def _with_replayed(
    inputs: Tensor, log_decay: Tensor, beta: Tensor, state: RecurrentState, window: WindowRows
) -> tuple[Tensor, Tensor, Tensor]:
    """Columns [batch, taps - 1 + total, conv_dim], log decays and betas [batch, total, value_heads]."""
    slots, replayed = window.slot_range, max(window.pending)
    if slots is None or min(window.pending) < replayed:
        history, replay_log_decay, replay_beta = replay_rows(state, window, state.convolution.shape[1])
        columns = torch.cat((history, inputs), 1)
        if replayed == 0:
            return columns, log_decay, beta
        return columns, torch.cat((replay_log_decay, log_decay), 1), torch.cat((replay_beta, beta), 1)
    if replayed == 0:
        return torch.cat((state.convolution[slots], inputs), 1), log_decay, beta
    rows = (slots, slice(replayed))
    return (
        torch.cat((state.convolution[slots], state.stash_inputs[rows], inputs), 1),
        torch.cat((state.stash_log_decay[rows], log_decay), 1),
        torch.cat((state.stash_beta[rows], beta), 1),
    )


def _convolve(columns: Tensor, batch: int, total: int, width: int, taps: Tensor) -> Tensor:
    """Causal depthwise convolution and SiLU: [batch, total, conv_dim] float32."""
    # The same columns as seen by each tap, [batch, taps, total, conv_dim], without a copy.
    strides = ((total + taps.shape[0] - 1) * width, width, width, 1)
    seen = columns.as_strided((batch, taps.shape[0], total, width), strides)
    return _wide(F.silu((seen * taps).sum(1), inplace=True))


def _one_row(
    mixed: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    parameters: GatedDeltaParameters,
    state: RecurrentState,
    window: WindowRows,
) -> Tensor:
    """One certain row and nothing to replay: [batch * value_heads, 1, value_head_dim]; the state moves on."""
    value_heads = log_decay.shape[2]
    units, value = _split(mixed, parameters, value_heads)
    order = _head_order(mixed.shape[0], 1, 1, parameters.num_key_heads, value_heads, mixed.device)
    query, key = units.index_select(0, order).view(-1, 2, 1, parameters.key_head_dim).unbind(1)
    pool = window.select(state.recurrent)
    recurrent = pool.view(-1, *pool.shape[2:])
    recurrent.mul_(log_decay.exp().view(-1, 1, 1))
    correction = torch.baddbmm(value, key, recurrent, alpha=-1).mul_(beta.view(-1, 1, 1))
    recurrent.baddbmm_(key.transpose(1, 2), correction)
    if window.slot_range is None:
        window.store(state.recurrent, pool)
    return torch.bmm(query, recurrent)


def _several_rows(
    mixed: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    rows: int,
    parameters: GatedDeltaParameters,
    state: RecurrentState,
    window: WindowRows,
) -> Tensor:
    """Outputs of the last `rows` rows, [batch * value_heads, rows, value_head_dim]; the state takes what is certain.

    As `gated_delta_blocked` with one block. The queries of the new rows and the keys of all rows lie below each
    other, so that one product reads the state for both and one gives all pairs.
    """
    batch, total, value_heads = log_decay.shape
    units, value = _split(mixed, parameters, value_heads)
    order = _head_order(batch, total, rows, parameters.num_key_heads, value_heads, mixed.device)
    heads = units.index_select(0, order).view(batch * value_heads, rows + total, -1)
    keys = heads.narrow(1, rows, total)
    pool = window.select(state.recurrent)
    recurrent = pool.view(-1, *pool.shape[2:])
    mask, sums = _decay_table(total, rows, mixed.device)
    by_head = log_decay.transpose(1, 2).reshape(-1, total)
    decays = torch.addmm(mask, by_head, sums).exp_().view(-1, rows + total, total + 1)
    parts = (rows, total)
    query_pairs, key_pairs = (
        torch.bmm(heads, keys.transpose(1, 2)).mul_(decays[..., 1:]).split_with_sizes(parts, 1)
    )
    query_reads, key_reads = torch.bmm(heads, recurrent).mul_(decays[..., :1]).split_with_sizes(parts, 1)
    weight = beta.transpose(1, 2).reshape(-1, total, 1)
    # The negated right side and solution save a copy; the sign returns where they are used.
    negated = torch.linalg.solve_triangular(
        key_pairs * weight, key_reads.sub_(value).mul_(weight), upper=False, unitriangular=True
    )
    output = torch.baddbmm(query_reads, query_pairs, negated, alpha=-1)
    certain = total if window.commits_all else total - rows
    if certain:
        last = rows + certain - 1
        fading_keys = keys.narrow(1, 0, certain) * decays[:, last, 1 : certain + 1, None]
        recurrent.mul_(decays[:, last, :1, None])
        recurrent.baddbmm_(fading_keys.transpose(1, 2), negated.narrow(1, 0, certain), alpha=-1)
        if window.slot_range is None:
            window.store(state.recurrent, pool)
    return output


def _split(mixed: Tensor, parameters: GatedDeltaParameters, value_heads: int) -> tuple[Tensor, Tensor]:
    """Unit queries and keys [batch * total * 2 * key_heads, key_head_dim]; values [batch * value_heads, total,
    value_head_dim]."""
    batch, total, width = mixed.shape
    key_width = 2 * parameters.num_key_heads * parameters.key_head_dim
    both, value = mixed.split_with_sizes((key_width, width - key_width), 2)
    both = both.view(batch * total, -1, parameters.key_head_dim)
    units = both / length(both, parameters.folded.key_root_epsilon)
    value = value.view(batch, total, value_heads, -1).transpose(1, 2)
    return units.view(-1, parameters.key_head_dim), value.flatten(0, 1)


@lru_cache(maxsize=256)
def _head_order(
    batch: int, total: int, rows: int, key_heads: int, value_heads: int, device: torch.device
) -> Tensor:
    """Which unit vectors each value head reads: queries of the last `rows` rows, then keys of all rows.

    Unit vectors lie as [batch, total, (query, key), key_heads].
    """
    wanted = [*((row, 0) for row in range(total - rows, total)), *((row, 1) for row in range(total))]
    repeats = value_heads // key_heads
    order = [
        ((sequence * total + row) * 2 + kind) * key_heads + head // repeats
        for sequence in range(batch)
        for head in range(value_heads)
        for row, kind in wanted
    ]
    return torch.tensor(order, device=device)


@lru_cache(maxsize=256)
def _decay_table(total: int, rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Constants that turn log decays [heads, total] into those between rows, [heads, (rows + total) * (total + 1)].

    Output rows are those of `_head_order`. Column 0 is the decay since the state before the window, column j + 1
    that since row j: the sum over the later rows up to the output's own. A later j is masked with -inf.

    Returns:
        Mask [1, columns], to add; sums [total, columns], zeros and ones.
    """
    ends = torch.tensor([*range(total - rows, total), *range(total)]).view(-1, 1)
    begins = torch.arange(-1, total)
    mask = torch.where(begins > ends, -torch.inf, 0.0)
    inside = torch.arange(total).view(-1, 1, 1)
    sums = ((inside > begins) & (inside <= ends)).float()
    return mask.view(1, -1).to(device), sums.view(total, -1).to(device)


def _write_rows(
    columns: Tensor, inputs: Tensor, log_decay: Tensor, beta: Tensor, state: RecurrentState, window: WindowRows
) -> None:
    """Convolution inputs of the certain rows; then nothing more, or the new stash."""
    tail, rows, replayed = state.convolution.shape[1], inputs.shape[1], max(window.pending)
    if window.commits_all:
        padded = window.valid is not None
        newest = reference.newest_columns(columns, window, tail) if padded else columns[:, replayed + rows :]
        window.store(state.convolution, newest)
        return
    if replayed:
        window.store(state.convolution, columns[:, replayed : replayed + tail])
    stash = ((state.stash_inputs, inputs), (state.stash_log_decay, log_decay), (state.stash_beta, beta))
    for pool, new in stash:
        if window.slot_range is not None:
            pool[window.slot_range, :rows] = new
        else:
            window.store(pool[:, :rows], new)


def _gated_norm(output: Tensor, gate: Tensor, parameters: GatedDeltaParameters, dtype: torch.dtype) -> Tensor:
    """RMSNorm over each head, then the SiLU of the gate: [batch, rows, value_heads * value_head_dim]."""
    folded = parameters.folded
    normed = (output / length(output, folded.output_root_epsilon)).mul_(folded.output_scale)
    batch, rows, value_heads, _ = gate.shape
    by_row = normed.view(batch, value_heads, rows, -1).transpose(1, 2)
    return F.silu(_wide(gate)).mul_(by_row).flatten(2).to(dtype)
