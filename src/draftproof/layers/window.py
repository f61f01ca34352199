"""What layers see of the sequences' state during one window; the runtime fills it in."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftproof.kernels.gated_delta_step.reference import RecurrentState, WindowRows


@dataclass(frozen=True)
class KeyValueCache:
    """One attention layer's pages: keys and values, each [pages, page_size, key_value_heads, head_dim]."""

    keys: Tensor
    values: Tensor


LayerState = KeyValueCache | RecurrentState


@dataclass(frozen=True)
class AttentionRows:
    """Where a window's rows stand in the pages.

    Attributes:
        positions: [batch, rows] int64 position of each row.
        page_table: [batch, pages per sequence] int64.
        starts: position of the first row of each sequence.
        locations: [batch * rows] int64 flat page location of each row; page 0 for padding.
    """

    positions: Tensor
    page_table: Tensor
    starts: tuple[int, ...]
    locations: Tensor


@dataclass(frozen=True)
class Window:
    """One window over a batch of sequences, the same for every layer.

    Attributes:
        rows: geometry for recurrent layers.
        attention: geometry for attention layers.
        trunk: state of each trunk layer, in order.
    """

    rows: WindowRows
    attention: AttentionRows
    trunk: tuple[LayerState, ...]
