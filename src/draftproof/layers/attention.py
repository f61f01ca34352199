"""Gated full attention with grouped key/value heads, head norms and rotary positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from draftproof.architecture.spec import AttentionSpec
from draftproof.kernels.norm.reference import length
from draftproof.kernels.paged_attention import fused, host
from draftproof.kernels.paged_attention.reference import paged_attention, write_pages
from draftproof.layers.linear import Linear
from draftproof.layers.norm import OffsetRmsNorm
from draftproof.layers.rotary import rotate_
from draftproof.layers.window import AttentionRows, KeyValueCache


@dataclass(frozen=True)
class Attention:
    """One layer.

    Attributes:
        spec: head counts and widths.
        projections: hidden to [query (and gate, interleaved per head), key, value] side by side.
        output: heads back to hidden.
        query_norm: over head_dim.
        key_norm: over head_dim.
    """

    spec: AttentionSpec
    projections: Linear
    output: Linear
    query_norm: OffsetRmsNorm
    key_norm: OffsetRmsNorm

    def __call__(
        self, hidden: Tensor, angles: tuple[Tensor, Tensor], cache: KeyValueCache, rows: AttentionRows
    ) -> Tensor:
        """[batch, rows, hidden] to the same; writes the rows' keys and values into the cache."""
        query, gate = self._extend(hidden, angles, cache, rows)
        return self._attend(query, gate, cache, rows)

    def last(
        self, hidden: Tensor, angles: tuple[Tensor, Tensor], cache: KeyValueCache, rows: AttentionRows
    ) -> Tensor:
        """[batch, rows, hidden] to the output of each sequence's last real row, [batch, 1, hidden].

        All rows' keys and values go into the cache.
        """
        query, gate = self._extend(hidden, angles, cache, rows)
        if gate is not None:
            gate = rows.pick_last(gate)
        return self._attend(rows.pick_last(query), gate, cache, rows.last)

    def _extend(
        self, hidden: Tensor, angles: tuple[Tensor, Tensor], cache: KeyValueCache, rows: AttentionRows
    ) -> tuple[Tensor, Tensor | None]:
        """Write keys and values; queries and output gate, [batch, rows, heads, head_dim]."""
        spec = self.spec
        batch, count, _ = hidden.shape
        key_width = spec.num_key_value_heads * spec.head_dim
        projected = self.projections(hidden)
        query, key, value = projected.split_with_sizes(
            (projected.shape[-1] - 2 * key_width, key_width, key_width), -1
        )
        query, gate = query.view(batch, count, spec.num_heads, -1), None
        if spec.gated:
            query, gate = query.split_with_sizes((spec.head_dim, spec.head_dim), -1)
        shape = (batch, count, spec.num_key_value_heads, spec.head_dim)
        query, key = self._place(query, key.view(shape), angles)
        if (origin := rows.only_origin) is None:
            write_pages(cache.keys, key, rows.locations)
            write_pages(cache.values, value.view(shape), rows.locations)
        else:
            host.write_pages(cache.keys, key, origin + rows.starts[0])
            host.write_pages(cache.values, value.view(shape), origin + rows.starts[0])
        return query, gate

    def _attend(
        self, query: Tensor, gate: Tensor | None, cache: KeyValueCache, rows: AttentionRows
    ) -> Tensor:
        """[batch, rows, hidden] of rows whose keys and values are in the cache."""
        if query.is_cuda:
            attended = fused.paged_attention(query, cache.keys, cache.values, rows.page_table, rows.starts)
        elif (origin := rows.only_origin) is None:
            attended = paged_attention(query, cache.keys, cache.values, rows.page_table, rows.starts)
        else:
            attended = host.paged_attention(query, cache.keys, cache.values, origin, rows.starts[0])
        if gate is not None:
            attended = attended.mul_(torch.sigmoid(gate))
        return self.output(attended.flatten(2))

    def _place(self, query: Tensor, key: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Norm and rotation of queries and keys, as heads of one tensor: half the operations."""
        heads = torch.cat((query, key), 2)
        wide = heads if heads.dtype is torch.float32 else heads.float()
        normed = (wide / length(wide, self._root_epsilon)).mul_(self._scale).to(heads.dtype)
        rotate_(normed, angles)
        query, key = normed.split_with_sizes((query.shape[2], key.shape[2]), 2)
        return query, key

    @cached_property
    def _scale(self) -> Tensor:
        """[heads, head_dim] of all queries, then all keys."""
        return torch.stack(
            [self.query_norm.scale] * self.spec.num_heads
            + [self.key_norm.scale] * self.spec.num_key_value_heads
        )

    @cached_property
    def _root_epsilon(self) -> Tensor:
        """[heads, 1] in the same order."""
        return torch.stack(
            [self.query_norm.root_epsilon] * self.spec.num_heads
            + [self.key_norm.root_epsilon] * self.spec.num_key_value_heads
        ).unsqueeze(1)
