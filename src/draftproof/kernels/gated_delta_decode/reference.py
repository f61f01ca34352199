"""Plain torch definition of the device form of the Gated DeltaNet window step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.kernels.gated_delta.reference import gated_delta_blocked
from draftproof.kernels.gated_delta_decode.state import Commit, DeviceRecurrentState, ProjectedColumns
from draftproof.kernels.gated_delta_step.reference import (
    GatedDeltaParameters,
    convolve,
    gated_norm,
)
from draftproof.kernels.step_geometry import StepGeometry


def gated_delta_decode(
    projected: Tensor,
    columns: ProjectedColumns,
    parameters: GatedDeltaParameters,
    state: DeviceRecurrentState,
    geometry: StepGeometry,
    commit: Commit,
    out: Tensor,
) -> None:
    """Replay each sequence's pending rows, commit them, and run its window; see `Commit` for the rest.

    The parity of the slots is read, not flipped. Sequences that share a slot (padding) must not be read
    afterwards, neither their rows of `out` nor the slot.

    Args:
        projected: [batch * rows, width], row b * rows + j is row j of sequence b; may have a row stride.
        columns: where its parts begin.
        parameters: weights, float32.
        state: pools; `geometry.slots` are moved.
        geometry: which slots, how many pending rows of each, which side of the pools.
        commit: what becomes of the window's rows. STASH needs room for them.
        out: [batch * rows, value_heads * value_head_dim], written.
    """
    batch, rows = geometry.batch, geometry.rows
    value_heads, value_dim = parameters.negative_a.shape[0], parameters.norm.shape[0]
    conv_dim, tail = state.convolution.shape[3], state.convolution.shape[2]

    def part(begin: int, width: int) -> Tensor:
        return projected[:, begin : begin + width].reshape(batch, rows, width)

    inputs = part(columns.inputs, conv_dim)
    gate = part(columns.gate, value_heads * value_dim).view(batch, rows, value_heads, value_dim)
    log_decay = parameters.negative_a * F.softplus(part(columns.a, value_heads).float() + parameters.dt_bias)
    beta = part(columns.b, value_heads).float().sigmoid()

    slots = geometry.slots.long()
    side = geometry.parity[slots].long()
    history, old_log_decay, old_beta = _rows_to_replay(state, slots, side, geometry.pending[slots].long())
    replayed = state.window_rows
    columns_of_all = torch.cat((history, inputs.to(history.dtype)), 1)
    query, key, value = convolve(columns_of_all.float(), parameters)
    output, committed = gated_delta_blocked(
        query,
        key,
        value,
        torch.cat((old_log_decay, log_decay), 1),
        torch.cat((old_beta, beta), 1),
        state.recurrent[slots],
        replayed + (rows if commit is Commit.ALL else 0),
    )
    state.recurrent[slots] = committed
    end = columns_of_all.shape[1] - (0 if commit is Commit.ALL else rows)
    state.convolution[1 - side, slots] = columns_of_all[:, end - tail : end]
    if commit is Commit.STASH:
        state.stash_inputs[1 - side, slots, :rows] = inputs.to(history.dtype)
        state.stash_log_decay[1 - side, slots, :rows] = log_decay
        state.stash_beta[1 - side, slots, :rows] = beta
    out.copy_(gated_norm(output[:, replayed:], gate, parameters).reshape(batch * rows, -1))


def _rows_to_replay(
    state: DeviceRecurrentState, slots: Tensor, side: Tensor, pending: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Convolution inputs [batch, tail + room, conv_dim], log decays and betas [batch, room, value_heads].

    A sequence with fewer pending rows than the stash has room for is padded in front: a padded row has log
    decay and beta 0, which leaves the state as it is, and no real row's convolution reaches its inputs.
    """
    room, tail = state.window_rows, state.convolution.shape[2]
    columns = torch.cat((state.convolution[side, slots], state.stash_inputs[side, slots]), 1)
    shift = (room - pending).unsqueeze(1)
    order = (torch.arange(tail + room, device=slots.device) - shift).clamp_min(0)
    row_order = torch.arange(room, device=slots.device) - shift
    real = (row_order >= 0).unsqueeze(-1)
    taken = row_order.clamp_min(0).unsqueeze(-1)

    def pick(stash: Tensor) -> Tensor:
        values = stash[side, slots]
        return torch.where(real, values.gather(1, taken.expand_as(values)), 0.0)

    columns = columns.gather(1, order.unsqueeze(-1).expand_as(columns))
    return columns, pick(state.stash_log_decay), pick(state.stash_beta)
