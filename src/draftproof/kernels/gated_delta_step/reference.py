"""Plain torch definition of the Gated DeltaNet window step with lazy replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.kernels.gated_delta.chunked import gated_delta_chunked
from draftproof.kernels.gated_delta.reference import BLOCK_ROWS, gated_delta, gated_delta_blocked

SEQUENTIAL_ROWS = 1
"""Up to this many rows the row-by-row form needs fewer operations than the blocked one."""

NORMALISATION_EPSILON = 1e-6


@dataclass(frozen=True)
class RecurrentState:
    """Pools of one layer's state, indexed by slot. Written only by `gated_delta_step`.

    Attributes:
        recurrent: [slots, value_heads, key_head_dim, value_head_dim] float32, committed rows only.
        convolution: [slots, conv_kernel - 1, conv_dim] inputs of the last committed rows, oldest first.
        stash_inputs: [slots, window_rows, conv_dim] convolution inputs of the newest window.
        stash_log_decay: [slots, window_rows, value_heads] float32.
        stash_beta: [slots, window_rows, value_heads] float32.
    """

    recurrent: Tensor
    convolution: Tensor
    stash_inputs: Tensor
    stash_log_decay: Tensor
    stash_beta: Tensor

    @cached_property
    def views(self) -> dict[tuple[int, int, int, int], StateViews]:
        """Views that the host form has made: a decode loop needs the same few in every step."""
        return {}


@dataclass(frozen=True)
class StateViews:
    """Parts of one layer's pools for a batch of consecutive slots.

    Attributes:
        recurrent: [batch * value_heads, key_head_dim, value_head_dim].
        convolution: [batch, conv_kernel - 1, conv_dim].
        replayed: inputs, log decays and betas of the stash's rows to replay, [batch, replayed, ...] each.
        stash: the same of the stash's rows to write, [batch, rows, ...] each.
    """

    recurrent: Tensor
    convolution: Tensor
    replayed: tuple[Tensor, Tensor, Tensor]
    stash: tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class FoldedConstants:
    """Numbers of one layer that depend on its weights alone, as the host form reads them.

    Attributes:
        taps: [conv_kernel, 1, conv_dim], the convolution's weights for each step back in time, oldest first.
        key_root_epsilon: scalar tensor, for `norm.length` of queries and keys.
        output_root_epsilon: scalar tensor, for `norm.length` of outputs made with queries that were not
            scaled: a factor of the queries cancels in the norm, except in its epsilon.
        output_scale: [value_head_dim] float32, norm weight * sqrt(value_head_dim).
    """

    taps: Tensor
    key_root_epsilon: Tensor
    output_root_epsilon: Tensor
    output_scale: Tensor


@dataclass(frozen=True)
class GatedDeltaParameters:
    """Weights of one layer that are no projections.

    Attributes:
        convolution: [conv_dim, conv_kernel].
        negative_a: [value_heads] float32, -exp(A_log).
        dt_bias: [value_heads] float32.
        norm: [value_head_dim] float32 weight of the gated norm (not an offset from one).
        norm_epsilon: its epsilon.
        num_key_heads: heads of queries and keys; each serves value_heads / num_key_heads consecutive heads.
        key_head_dim: width of a query or key.
    """

    convolution: Tensor
    negative_a: Tensor
    dt_bias: Tensor
    norm: Tensor
    norm_epsilon: float
    num_key_heads: int
    key_head_dim: int

    @cached_property
    def folded(self) -> FoldedConstants:
        """Derived once, at the first use."""
        width = self.norm.shape[0]
        return FoldedConstants(
            taps=self.convolution.t().contiguous().unsqueeze(1),
            key_root_epsilon=self.norm.new_tensor(NORMALISATION_EPSILON**0.5),
            output_root_epsilon=self.norm.new_tensor((self.norm_epsilon * width * self.key_head_dim) ** 0.5),
            output_scale=self.norm * width**0.5,
        )


@dataclass(frozen=True)
class WindowRows:
    """Which rows of a padded window are real, and what is still to be replayed.

    Attributes:
        slots: [batch] int64, state slot of each sequence.
        slot_range: the same as a slice when the slots are consecutive, so that pools need not be gathered.
        pending: accepted rows of the last window per sequence, still in the stash.
        row_counts: real rows per sequence; later rows of the window are padding.
        valid: [batch, rows] bool; None when every row is real.
        commits_all: the window's rows are certain (prompt tokens, or a step without drafts): the state
            advances over all of them and nothing is stashed. Otherwise the rows go to the stash.
    """

    slots: Tensor
    slot_range: slice | None
    pending: tuple[int, ...]
    row_counts: tuple[int, ...]
    valid: Tensor | None
    commits_all: bool

    def select(self, pool: Tensor) -> Tensor:
        """Rows of a pool for this batch: a view when the slots are consecutive."""
        return pool[self.slot_range] if self.slot_range is not None else pool.index_select(0, self.slots)

    def store(self, pool: Tensor, rows: Tensor) -> None:
        """Write back what `select` read."""
        if self.slot_range is not None:
            pool[self.slot_range] = rows
        else:
            pool.index_copy_(0, self.slots, rows)


def gated_delta_step(
    inputs: Tensor,
    gate: Tensor,
    a: Tensor,
    b: Tensor,
    parameters: GatedDeltaParameters,
    state: RecurrentState,
    window: WindowRows,
) -> Tensor:
    """Advance one layer over a window.

    Args:
        inputs: [batch, rows, conv_dim] projected queries, keys, values, before the convolution.
        gate: [batch, rows, value_heads, value_head_dim] projected output gate (z).
        a: [batch, rows, value_heads] decay input; log decay = -exp(A_log) * softplus(a + dt_bias).
        b: [batch, rows, value_heads] beta input; beta = sigmoid(b).
        parameters: weights.
        state: pools; the slots of `window` are written.
        window: geometry.

    Returns:
        [batch, rows, value_heads * value_head_dim] in the dtype of `inputs`; padded rows hold no meaning.
    """
    rows = inputs.shape[1]
    log_decay = parameters.negative_a * F.softplus(a.float() + parameters.dt_bias)
    beta = b.float().sigmoid()
    if window.valid is not None:
        # A padded row must not touch the state.
        log_decay = log_decay * window.valid.unsqueeze(-1)
        beta = beta * window.valid.unsqueeze(-1)
    history, replay_log_decay, replay_beta = replay_rows(state, window, parameters.convolution.shape[1] - 1)
    columns = torch.cat((history, inputs), 1)
    query, key, value = convolve(columns, parameters)
    replayed = max(window.pending)
    if replayed:
        all_log_decay = torch.cat((replay_log_decay, log_decay), 1)
        all_beta = torch.cat((replay_beta, beta), 1)
    else:
        all_log_decay, all_beta = log_decay, beta
    total = replayed + rows
    output, committed = _rule_for(total, inputs.device)(
        query,
        key,
        value,
        all_log_decay,
        all_beta,
        window.select(state.recurrent),
        total if window.commits_all else replayed,
    )
    _write_state(state, window, columns, inputs, log_decay, beta, committed, replayed, history.shape[1])
    return gated_norm(output[:, replayed:], gate, parameters).to(inputs.dtype).flatten(2)


def _rule_for(rows: int, device: torch.device) -> Callable[..., tuple[Tensor, Tensor]]:
    """The form of the rule that is fastest for so many rows: all give the same."""
    if rows <= SEQUENTIAL_ROWS:
        return gated_delta
    return gated_delta_chunked if rows > BLOCK_ROWS and device.type == "cuda" else gated_delta_blocked


def settled_state(
    parameters: GatedDeltaParameters, state: RecurrentState, window: WindowRows
) -> tuple[Tensor, Tensor]:
    """Committed state with the pending rows applied, as new tensors; nothing is written.

    Returns:
        Recurrent state [batch, value_heads, key_head_dim, value_head_dim] and convolution inputs
        [batch, conv_kernel - 1, conv_dim].
    """
    tail = state.convolution.shape[1]
    history, log_decay, beta = replay_rows(state, window, tail)
    recurrent = window.select(state.recurrent)
    if max(window.pending):
        query, key, value = convolve(history, parameters)
        _, recurrent = gated_delta(query, key, value, log_decay, beta, recurrent, max(window.pending))
    return recurrent.clone(), history[:, -tail:].clone()


def replay_rows(state: RecurrentState, window: WindowRows, tail: int) -> tuple[Tensor, Tensor, Tensor]:
    """Convolution inputs [batch, tail + max pending, conv_dim], log decays and betas of the rows to replay.

    Sequences with fewer pending rows are padded in front, so that the newest accepted row is the last column
    for all of them. A padded row is a no-op for the recurrence, and its convolution inputs reach no real row:
    a real row looks back `tail` columns, all of which are real.
    """
    committed = window.select(state.convolution)
    replayed = max(window.pending)
    if replayed == 0:
        return committed, committed, committed
    stash = window.select(state.stash_inputs)[:, :replayed]
    log_decay = window.select(state.stash_log_decay)[:, :replayed]
    beta = window.select(state.stash_beta)[:, :replayed]
    columns = torch.cat((committed, stash), 1)
    if min(window.pending) == replayed:
        return columns, log_decay, beta
    pending = torch.tensor(window.pending, device=columns.device)
    shift = replayed - pending.unsqueeze(1)
    order = (torch.arange(tail + replayed, device=columns.device) - shift).clamp_min(0)
    columns = columns.gather(1, order.unsqueeze(-1).expand(-1, -1, columns.shape[2]))
    row_order = torch.arange(replayed, device=columns.device) - shift
    real = (row_order >= 0).unsqueeze(-1)
    gather_rows = row_order.clamp_min(0).unsqueeze(-1).expand(-1, -1, log_decay.shape[2])
    zero = log_decay.new_zeros(())
    return (
        columns,
        torch.where(real, log_decay.gather(1, gather_rows), zero),
        torch.where(real, beta.gather(1, gather_rows), zero),
    )


def convolve(columns: Tensor, parameters: GatedDeltaParameters) -> tuple[Tensor, Tensor, Tensor]:
    """Causal depthwise convolution and SiLU; queries and keys normalised and repeated to the value heads."""
    kernel = parameters.convolution.shape[1]
    mixed = F.silu((columns.unfold(1, kernel, 1) * parameters.convolution).sum(-1)).float()
    batch, rows, _ = mixed.shape
    key_dim = parameters.num_key_heads * parameters.key_head_dim
    value = mixed[..., 2 * key_dim :]
    queries_and_keys = mixed[..., : 2 * key_dim].view(batch, rows, 2, parameters.num_key_heads, -1)
    norm = (queries_and_keys.square().sum(-1, keepdim=True) + NORMALISATION_EPSILON).rsqrt()
    queries_and_keys = queries_and_keys * norm
    value_heads = parameters.negative_a.shape[0]
    repeats = value_heads // parameters.num_key_heads
    if repeats > 1:
        queries_and_keys = (
            queries_and_keys.unsqueeze(4)
            .expand(-1, -1, -1, -1, repeats, -1)
            .reshape(batch, rows, 2, value_heads, -1)
        )
    query, key = queries_and_keys.unbind(2)
    return query * parameters.key_head_dim**-0.5, key, value.view(batch, rows, value_heads, -1)


def _write_state(
    state: RecurrentState,
    window: WindowRows,
    columns: Tensor,
    inputs: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    committed: Tensor,
    replayed: int,
    history_length: int,
) -> None:
    """The only place that writes: committed state once, then either nothing more or the new stash."""
    tail = state.convolution.shape[1]
    if window.commits_all:
        window.store(state.recurrent, committed)
        if window.valid is None:
            window.store(state.convolution, columns[:, -tail:])
        else:
            window.store(state.convolution, newest_columns(columns, window, tail))
        return
    if replayed:
        window.store(state.recurrent, committed)
        window.store(state.convolution, columns[:, history_length - tail : history_length])
    rows = inputs.shape[1]
    for pool, new in (
        (state.stash_inputs, inputs),
        (state.stash_log_decay, log_decay),
        (state.stash_beta, beta),
    ):
        window.store(pool[:, :rows], new)


def newest_columns(columns: Tensor, window: WindowRows, tail: int) -> Tensor:
    """Last `tail` convolution inputs of each sequence's real rows, [batch, tail, conv_dim].

    `columns` [batch, history + rows, conv_dim] ends with the window's rows, of which the last ones may be
    padding.
    """
    counts = torch.tensor(window.row_counts, device=columns.device)
    history = columns.shape[1] - max(window.row_counts)
    order = counts.unsqueeze(1) + torch.arange(history - tail, history, device=columns.device)
    return columns.gather(1, order.unsqueeze(-1).expand(-1, -1, columns.shape[2]))


def gated_norm(output: Tensor, gate: Tensor, parameters: GatedDeltaParameters) -> Tensor:
    """RMSNorm over each head, then the SiLU of the gate; float32."""
    width = output.shape[-1]
    inverse = (output * output).sum(-1, keepdim=True).add_(parameters.norm_epsilon * width).rsqrt_()
    normed = output * inverse * (parameters.norm * width**0.5)
    gated: Tensor = normed * F.silu(gate.float())
    return gated
