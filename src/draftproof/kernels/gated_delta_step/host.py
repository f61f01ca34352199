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
    rows, replayed = inputs.shape[1], max(window.pending)
    total = replayed + rows
    if total > FEW_ROWS:
        return reference.gated_delta_step(inputs, gate, a, b, parameters, state, window)
    log_decay = F.softplus(a.float() + parameters.dt_bias).mul_(parameters.negative_a)
    beta = b.float().sigmoid()
    if window.valid is not None:
        # A padded row must not touch the state.
        log_decay = log_decay * window.valid.unsqueeze(-1)
        beta = beta * window.valid.unsqueeze(-1)
    history, replay_log_decay, replay_beta = replay_rows(state, window, parameters.convolution.shape[1] - 1)
    columns = torch.cat((history, inputs), 1)
    mixed = _convolve(columns, total, parameters)
    if total == 1 and window.commits_all:
        output = _one_row(mixed, log_decay, beta, parameters, state, window)
    elif replayed:
        all_log_decay = torch.cat((replay_log_decay, log_decay), 1)
        all_beta = torch.cat((replay_beta, beta), 1)
        output = _several_rows(mixed, all_log_decay, all_beta, rows, parameters, state, window)
    else:
        output = _several_rows(mixed, log_decay, beta, rows, parameters, state, window)
    _write_rows(state, window, columns, inputs, log_decay, beta, history.shape[1])
    return _gated_norm(output, gate, parameters).to(inputs.dtype).flatten(2)


def _convolve(columns: Tensor, total: int, parameters: GatedDeltaParameters) -> Tensor:
    """Causal depthwise convolution and SiLU: [batch, total, conv_dim] float32."""
    taps = parameters.folded.taps
    batch, length_, width = columns.shape
    if total == 1:
        mixed = (columns * taps).sum(1, keepdim=True)
    else:
        # The same columns as seen by each tap, [batch, taps, total, conv_dim], without a copy.
        seen = columns.as_strided((batch, taps.shape[0], total, width), (length_ * width, width, width, 1))
        mixed = (seen * taps.unsqueeze(1)).sum(1)
    return F.silu(mixed, inplace=True).float()


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
    heads = units.index_select(0, _head_order(mixed.shape[0], 1, 1, parameters, value_heads, mixed.device))
    query, key = heads.view(value.shape[0], 2, 1, -1).unbind(1)
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
    order = _head_order(batch, total, rows, parameters, value_heads, mixed.device)
    heads = units.index_select(0, order).view(batch * value_heads, rows + total, -1)
    keys = heads[:, rows:]
    pool = window.select(state.recurrent)
    recurrent = pool.view(-1, *pool.shape[2:])
    mask, sums = _decay_table(total, rows, mixed.device)
    decays = (
        torch.addmm(mask, log_decay.transpose(1, 2).reshape(-1, total), sums)
        .exp_()
        .view(-1, rows + total, total + 1)
    )
    pairs = torch.bmm(heads, keys.transpose(1, 2)).mul_(decays[..., 1:])
    reads = torch.bmm(heads, recurrent).mul_(decays[..., :1])
    weight = beta.transpose(1, 2).reshape(-1, total, 1)
    # The negated right side and solution save a copy; the sign returns where they are used.
    negated = torch.linalg.solve_triangular(
        pairs[:, rows:] * weight, reads[:, rows:].sub_(value).mul_(weight), upper=False, unitriangular=True
    )
    output = torch.baddbmm(reads[:, :rows], pairs[:, :rows], negated, alpha=-1)
    certain = total if window.commits_all else total - rows
    if certain:
        last = decays[:, rows + certain - 1]
        fading_keys = keys[:, :certain] * last[:, 1 : certain + 1].unsqueeze(-1)
        recurrent.mul_(last[:, 0, None, None])
        recurrent.baddbmm_(fading_keys.transpose(1, 2), negated[:, :certain], alpha=-1)
        if window.slot_range is None:
            window.store(state.recurrent, pool)
    return output


def _split(mixed: Tensor, parameters: GatedDeltaParameters, value_heads: int) -> tuple[Tensor, Tensor]:
    """Unit queries and keys [batch * total * 2 * key_heads, key_head_dim]; values [batch * value_heads, total, dim]."""
    batch, total, width = mixed.shape
    key_width = 2 * parameters.num_key_heads * parameters.key_head_dim
    both = mixed[..., :key_width].view(batch, total, -1, parameters.key_head_dim)
    units = both / length(both, parameters.folded.key_root_epsilon)
    value = mixed[..., key_width:].view(batch, total, value_heads, -1).transpose(1, 2)
    return units.view(-1, parameters.key_head_dim), value.flatten(0, 1)


def _head_order(
    batch: int,
    total: int,
    rows: int,
    parameters: GatedDeltaParameters,
    value_heads: int,
    device: torch.device,
) -> Tensor:
    return _head_order_of(batch, total, rows, parameters.num_key_heads, value_heads, device)


@lru_cache(maxsize=256)
def _head_order_of(
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

    Output rows are those of `_head_order_of`. Column 0 is the decay since the state before the window, column j + 1
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
    state: RecurrentState,
    window: WindowRows,
    columns: Tensor,
    inputs: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    history_length: int,
) -> None:
    """Convolution inputs of the certain rows; then nothing more, or the new stash."""
    tail = state.convolution.shape[1]
    rows = inputs.shape[1]
    if window.commits_all:
        newest = (
            columns[:, -tail:] if window.valid is None else reference.newest_columns(columns, window, tail)
        )
        window.store(state.convolution, newest)
        return
    if history_length > tail:
        window.store(state.convolution, columns[:, history_length - tail : history_length])
    for pool, new in (
        (state.stash_inputs, inputs),
        (state.stash_log_decay, log_decay),
        (state.stash_beta, beta),
    ):
        if window.slot_range is not None:
            pool[window.slot_range, :rows] = new
        else:
            window.store(pool[:, :rows], new)


def _gated_norm(output: Tensor, gate: Tensor, parameters: GatedDeltaParameters) -> Tensor:
    """RMSNorm over each head, then the SiLU of the gate: [batch, rows, value_heads, value_head_dim] float32."""
    folded = parameters.folded
    normed = (output / length(output, folded.output_root_epsilon)).mul_(folded.output_scale)
    batch, rows, value_heads, _ = gate.shape
    by_row = normed.view(batch, value_heads, rows, -1).transpose(1, 2)
    return F.silu(gate.float()).mul_(by_row)
