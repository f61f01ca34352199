"""The window step with few operations, for the few rows of a decode step on a CPU.

There the time goes into starting operations, not into arithmetic. So all rows, replayed and new, queries and
keys, go through the same few products; decays between rows are one product with a constant table; the state
is changed in place; and factors that cancel are left out.
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
    StateViews,
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
    views = _views(state, window, rows)
    columns, all_log_decay, all_beta = _with_replayed(inputs, log_decay, beta, state, window, views)
    mixed = _convolve(columns, batch, total, width, parameters.folded.taps)
    recurrent = _gathered(state, window) if views is None else views.recurrent
    if total == 1 and window.commits_all:
        output = _one_row(mixed, all_log_decay, all_beta, parameters, recurrent)
    else:
        certain = total if window.commits_all else replayed
        output = _several_rows(mixed, all_log_decay, all_beta, rows, certain, parameters, recurrent)
    if views is None:
        window.store(state.recurrent, recurrent.view(batch, *state.recurrent.shape[1:]))
    _write_rows(columns, (inputs, log_decay, beta), state, window, views)
    return _gated_norm(output, gate, parameters, inputs.dtype)


def _views(state: RecurrentState, window: WindowRows, rows: int) -> StateViews | None:
    """Views for this geometry; None when the slots are not consecutive."""
    slots, replayed = window.slot_range, max(window.pending)
    if slots is None:
        return None
    key = (slots.start, slots.stop, replayed, rows)
    found = state.views.get(key)
    if found is None:
        stash = (state.stash_inputs, state.stash_log_decay, state.stash_beta)
        inputs, log_decay, beta = (pool[slots, :replayed] for pool in stash)
        new_inputs, new_log_decay, new_beta = (pool[slots, :rows] for pool in stash)
        found = state.views[key] = StateViews(
            recurrent=state.recurrent[slots].view(-1, *state.recurrent.shape[2:]),
            convolution=state.convolution[slots],
            replayed=(inputs, log_decay, beta),
            stash=(new_inputs, new_log_decay, new_beta),
        )
    return found


def _gathered(state: RecurrentState, window: WindowRows) -> Tensor:
    """[batch * value_heads, key_head_dim, value_head_dim], a copy."""
    return state.recurrent.index_select(0, window.slots).view(-1, *state.recurrent.shape[2:])


def _wide(rows: Tensor) -> Tensor:
    """In float32; a call less when it is."""
    return rows if rows.dtype is torch.float32 else rows.float()


def _with_replayed(
    inputs: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    state: RecurrentState,
    window: WindowRows,
    views: StateViews | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Columns [batch, taps - 1 + total, conv_dim], log decays and betas [batch, total, value_heads]."""
    replayed = max(window.pending)
    if views is not None and min(window.pending) == replayed:
        if replayed == 0:
            return torch.cat((views.convolution, inputs), 1), log_decay, beta
        old_inputs, old_log_decay, old_beta = views.replayed
        return (
            torch.cat((views.convolution, old_inputs, inputs), 1),
            torch.cat((old_log_decay, log_decay), 1),
            torch.cat((old_beta, beta), 1),
        )
    history, old_log_decay, old_beta = replay_rows(state, window, state.convolution.shape[1])
    columns = torch.cat((history, inputs), 1)
    if replayed == 0:
        return columns, log_decay, beta
    return columns, torch.cat((old_log_decay, log_decay), 1), torch.cat((old_beta, beta), 1)


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
    recurrent: Tensor,
) -> Tensor:
    """One certain row and nothing to replay: [batch * value_heads, 1, value_head_dim]; the state moves on."""
    value_heads = log_decay.shape[2]
    units, value = _split(mixed, parameters, value_heads)
    order = _head_order(mixed.shape[0], 1, 1, parameters.num_key_heads, value_heads, mixed.device)
    query, key = units.index_select(0, order).view(-1, 2, 1, parameters.key_head_dim).unbind(1)
    recurrent.mul_(log_decay.exp().view(-1, 1, 1))
    correction = torch.baddbmm(value, key, recurrent, alpha=-1).mul_(beta.view(-1, 1, 1))
    recurrent.baddbmm_(key.transpose(1, 2), correction)
    return torch.bmm(query, recurrent)


def _several_rows(
    mixed: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    rows: int,
    certain: int,
    parameters: GatedDeltaParameters,
    recurrent: Tensor,
) -> Tensor:
    """Outputs of the last `rows` rows, [batch * value_heads, rows, value_head_dim]; the state takes the first
    `certain` rows.

    As `gated_delta_blocked` with one block. The queries of the new rows and the keys of all rows lie below
    each other, so that one product reads the state for both and one gives all pairs.
    """
    batch, total, value_heads = log_decay.shape
    units, value = _split(mixed, parameters, value_heads)
    order = _head_order(batch, total, rows, parameters.num_key_heads, value_heads, mixed.device)
    heads = units.index_select(0, order).view(batch * value_heads, rows + total, -1)
    keys = heads.narrow(1, rows, total)
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
    if certain:
        last = rows + certain - 1
        fading_keys = keys.narrow(1, 0, certain) * decays[:, last, 1 : certain + 1, None]
        recurrent.mul_(decays[:, last, :1, None])
        recurrent.baddbmm_(fading_keys.transpose(1, 2), negated.narrow(1, 0, certain), alpha=-1)
    return output


def _split(mixed: Tensor, parameters: GatedDeltaParameters, value_heads: int) -> tuple[Tensor, Tensor]:
    """Unit queries and keys [batch * total * 2 * key_heads, key_head_dim]; values [batch * value_heads,
    total, value_head_dim]."""
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
    """Constants that turn log decays [heads, total] into those between rows, [heads, (rows + total) * (total
    + 1)].

    Output rows are those of `_head_order`. Column 0 is the decay since the state before the window, column j
    + 1 that since row j: the sum over the later rows up to the output's own. A later j is masked with -inf.

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
    columns: Tensor,
    new: tuple[Tensor, Tensor, Tensor],
    state: RecurrentState,
    window: WindowRows,
    views: StateViews | None,
) -> None:
    """Convolution inputs of the certain rows; then nothing more, or `new` inputs, log decays and betas as
    stash."""
    tail, rows, replayed = state.convolution.shape[1], new[0].shape[1], max(window.pending)
    if window.commits_all and window.valid is not None:
        window.store(state.convolution, reference.newest_columns(columns, window, tail))
    elif certain := (replayed + rows if window.commits_all else replayed):
        newest = columns.narrow(1, certain, tail)
        if views is None:
            window.store(state.convolution, newest)
        else:
            views.convolution.copy_(newest)
    if window.commits_all:
        return
    if views is None:
        for pool, values in zip(
            (state.stash_inputs, state.stash_log_decay, state.stash_beta), new, strict=True
        ):
            window.store(pool[:, :rows], values)
    else:
        for part, values in zip(views.stash, new, strict=True):
            part.copy_(values)


def _gated_norm(output: Tensor, gate: Tensor, parameters: GatedDeltaParameters, dtype: torch.dtype) -> Tensor:
    """RMSNorm over each head, then the SiLU of the gate: [batch, rows, value_heads * value_head_dim]."""
    folded = parameters.folded
    normed = (output / length(output, folded.output_root_epsilon)).mul_(folded.output_scale)
    batch, rows, value_heads, _ = gate.shape
    by_row = normed.view(batch, value_heads, rows, -1).transpose(1, 2)
    return F.silu(_wide(gate)).mul_(by_row).flatten(2).to(dtype)
