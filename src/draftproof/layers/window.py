"""What layers see of the sequences' state during one window; the runtime fills it in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
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

    Tensors are made when they are first asked for: one sequence whose pages are consecutive needs none.

    Attributes:
        page_table: [batch, pages per sequence] int64.
        page_size: positions per page.
        starts: position of the first row of each sequence.
        row_counts: real rows of each sequence; later rows of the window are padding.
        origins: flat page location of each sequence's position 0 when the pages up to the window's end are
            consecutive, so that position p lies at origin + p; else None.
    """

    page_table: Tensor
    page_size: int
    starts: tuple[int, ...]
    row_counts: tuple[int, ...]
    origins: tuple[int | None, ...]

    @property
    def rows(self) -> int:
        """Rows of the window, padding included."""
        return max(self.row_counts)

    @property
    def only_origin(self) -> int | None:
        """The origin of a batch of one sequence; None for other batches."""
        return self.origins[0] if len(self.origins) == 1 else None

    @cached_property
    def last(self) -> AttentionRows:
        """The last real row of each sequence, as a window of one row."""
        starts = tuple(start + count - 1 for start, count in zip(self.starts, self.row_counts, strict=True))
        return replace(self, starts=starts, row_counts=(1,) * len(starts))

    def pick_last(self, tensor: Tensor) -> Tensor:
        """[batch, rows, ...] to the last real row of each sequence, [batch, 1, ...]."""
        if min(self.row_counts) == self.rows:
            return tensor[:, -1:]
        index = torch.tensor(self.row_counts, device=tensor.device) - 1
        return tensor[torch.arange(len(self.row_counts), device=tensor.device), index].unsqueeze(1)

    @cached_property
    def positions(self) -> Tensor:
        """[batch, rows] int64 position of each row."""
        device = self.page_table.device
        return torch.tensor(self.starts, device=device).unsqueeze(1) + torch.arange(self.rows, device=device)

    @cached_property
    def locations(self) -> Tensor:
        """[batch * rows] int64 flat page location of each row; page 0 for padding."""
        pages = self.page_table.gather(1, self.positions // self.page_size)
        locations = pages * self.page_size + self.positions % self.page_size
        if min(self.row_counts) < self.rows:
            device = locations.device
            real = torch.arange(self.rows, device=device) < torch.tensor(
                self.row_counts, device=device
            ).unsqueeze(1)
            locations = torch.where(real, locations, 0)
        return locations.flatten()


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
