"""What the op reads and moves: pools of one layer's state, and where a projected row keeps its parts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from draftproof.architecture.spec import GatedDeltaNetSpec


class Commit(Enum):
    """What becomes of a window's rows."""

    STASH = "stash"
    """They may be rejected: the state takes only the pending rows of the last window, the new ones go to the
    stash."""
    ALL = "all"
    """They are certain: the state takes the pending rows and the new ones, nothing is stashed. The next
    window of this sequence has nothing pending."""


@dataclass(frozen=True)
class ProjectedColumns:
    """Where the parts of a projected row begin.

    Attributes:
        inputs: queries, keys and values before the convolution, conv_dim wide.
        gate: z, value_heads * value_head_dim wide.
        a: decay inputs, value_heads wide.
        b: beta inputs, value_heads wide.
    """

    inputs: int
    gate: int
    a: int
    b: int

    @staticmethod
    def side_by_side(spec: GatedDeltaNetSpec) -> ProjectedColumns:
        """[queries, keys, values, z, a, b], as `layers.GatedDeltaNet` projects."""
        a = spec.conv_dim + spec.value_dim
        return ProjectedColumns(0, spec.conv_dim, a, a + spec.num_value_heads)


@dataclass(frozen=True)
class DeviceRecurrentState:
    """Pools of one layer's state, indexed by slot. Written only by `gated_delta_decode` and prompts.

    The pools with two sides are read at the slot's parity and written at the other side, so that no part of
    a launch can see what another part writes; the step's last kernel flips the parity. The recurrent state
    needs no second side: each element is read and written by one thread.

    GPU forms read the pools, the slots and their geometry before they wait for the kernel before them, so
    that this overlaps with it. Whoever writes them must therefore be a full dependency away: another launch
    of a graph, or a kernel before the projections that does not release its dependents before its end.

    Attributes:
        recurrent: [slots, value_heads, key_head_dim, value_head_dim] float32, committed rows only.
        convolution: [2, slots, conv_kernel - 1, conv_dim], inputs of the last committed rows, oldest first.
        stash_inputs: [2, slots, window_rows, conv_dim], convolution inputs of the newest window.
        stash_log_decay: [2, slots, window_rows, value_heads] float32.
        stash_beta: [2, slots, window_rows, value_heads] float32.
    """

    recurrent: Tensor
    convolution: Tensor
    stash_inputs: Tensor
    stash_log_decay: Tensor
    stash_beta: Tensor

    @property
    def window_rows(self) -> int:
        """Rows that the stash has room for."""
        return self.stash_inputs.shape[2]

    @staticmethod
    def allocate(
        spec: GatedDeltaNetSpec,
        slots: int,
        window_rows: int,
        *,
        device: torch.device | str,
        dtype: torch.dtype = torch.bfloat16,
    ) -> DeviceRecurrentState:
        """Zeros, which are the state of an empty sequence.

        Args:
            spec: widths.
            slots: sequences that can be live at once, the scrap slot included.
            window_rows: most rows of a window that may be rejected (drafts + 1); 0 without speculation.
            device: where.
            dtype: of convolution inputs, that of the projections.
        """
        heads = spec.num_value_heads

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return DeviceRecurrentState(
            recurrent=zeros(slots, heads, spec.key_head_dim, spec.value_head_dim),
            convolution=zeros(2, slots, spec.conv_kernel - 1, spec.conv_dim, dtype=dtype),
            stash_inputs=zeros(2, slots, window_rows, spec.conv_dim, dtype=dtype),
            stash_log_decay=zeros(2, slots, window_rows, heads),
            stash_beta=zeros(2, slots, window_rows, heads),
        )
