"""Gated full attention with grouped key/value heads, head norms and rotary positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.architecture.spec import AttentionSpec
from draftproof.kernels.paged_attention.reference import paged_attention, write_pages
from draftproof.layers.linear import Linear
from draftproof.layers.norm import OffsetRmsNorm
from draftproof.layers.rotary import rotate
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
        spec = self.spec
        batch, count, _ = hidden.shape
        key_width = spec.num_key_value_heads * spec.head_dim
        projected = self.projections(hidden)
        query, key, value = projected.split((projected.shape[-1] - 2 * key_width, key_width, key_width), -1)
        gate = None
        query = query.view(batch, count, spec.num_heads, -1)
        if spec.gated:
            query, gate = query.chunk(2, -1)
        key = key.view(batch, count, spec.num_key_value_heads, spec.head_dim)
        query = rotate(self.query_norm(query), angles)
        key = rotate(self.key_norm(key), angles)
        write_pages(cache.keys, key, rows.locations)
        write_pages(cache.values, value.view(key.shape), rows.locations)
        attended = paged_attention(query, cache.keys, cache.values, rows.page_table, rows.starts)
        if gate is not None:
            attended = attended * torch.sigmoid(gate)
        return self.output(attended.flatten(2))
