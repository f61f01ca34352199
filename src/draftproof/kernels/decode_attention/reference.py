"""Plain torch definition, for any floating dtype: rounds where the kernels store; the host reads nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.kernels.decode_attention.parameters import AttentionParameters, AttentionScratch, Past
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.step_geometry import StepGeometry


def decode_attention(
    projected: Tensor,
    parameters: AttentionParameters,
    keys: Tensor,
    values: Tensor,
    geometry: StepGeometry,
    scratch: AttentionScratch,
    *,
    out: Tensor,
    past: Past = Past.MOVING,
) -> None:
    """Write the rows' keys and values into the pages and attend, each row to the positions up to its own.

    Args:
        projected: [batch * rows, at least query, key and value widths] BF16; may have a row stride.
        parameters: the layer's.
        keys: [pages, page_size, key_value_heads, head_dim] BF16; changed at the rows' positions.
        values: as `keys`.
        geometry: where the rows stand. Rows past the page table leave no keys, and see only what it holds.
        scratch: made by `make_scratch` for this batch and at least these rows; overwritten.
        out: [batch * rows, heads * head_dim] BF16; overwritten with gated outputs.
        past: what else is known of the past; kernels may use it, the result is the same.
    """
    query, gate = _place(projected, parameters, keys, values, geometry)
    positions = _positions(geometry)
    out.copy_(_attend(query, gate, positions, parameters, keys, values, geometry).reshape(out.shape))


def decode_attention_selected(
    projected: Tensor,
    parameters: AttentionParameters,
    keys: Tensor,
    values: Tensor,
    geometry: StepGeometry,
    row_index: Tensor,
    scratch: AttentionScratch,
    *,
    out: Tensor,
    past: Past = Past.MOVING,
) -> None:
    """Write all rows' keys and values into the pages, and attend for one row of each sequence.

    Args:
        projected: as for `decode_attention`.
        parameters: the layer's.
        keys: as for `decode_attention`.
        values: as `keys`.
        geometry: where the rows stand.
        row_index: [batch] int32, 0 to rows - 1: the row that attends; it sees no later row.
        scratch: made by `make_scratch` for this batch and at least one row.
        out: [batch, heads * head_dim] BF16; overwritten.
        past: as for `decode_attention`.
    """
    query, gate = _place(projected, parameters, keys, values, geometry)
    chosen = (torch.arange(geometry.batch, device=row_index.device), row_index.long())
    chosen_gate = None if gate is None else gate[chosen].unsqueeze(1)
    positions = _positions(geometry)[chosen].unsqueeze(1)
    query = query[chosen].unsqueeze(1)
    out.copy_(_attend(query, chosen_gate, positions, parameters, keys, values, geometry).reshape(out.shape))


def _positions(geometry: StepGeometry) -> Tensor:
    """[batch, rows] int64."""
    starts = geometry.lengths[geometry.slots.long()].long()
    return starts.unsqueeze(1) + torch.arange(geometry.rows, device=starts.device)


def _place(
    projected: Tensor, parameters: AttentionParameters, keys: Tensor, values: Tensor, geometry: StepGeometry
) -> tuple[Tensor, Tensor | None]:
    """Write keys and values; queries and gate, each [batch, rows, heads, head_dim]."""
    batch, rows, width = geometry.batch, geometry.rows, parameters.head_dim
    query_width, key_width = parameters.query_width, parameters.key_width
    used = projected[:, : query_width + 2 * key_width].view(batch, rows, -1)
    query, key, value = used.split_with_sizes((query_width, key_width, key_width), -1)
    query, gate = query.reshape(batch, rows, parameters.heads, -1), None
    if parameters.gated:
        query, gate = query.split_with_sizes((width, width), -1)
    key, value = (part.reshape(batch, rows, parameters.key_value_heads, width) for part in (key, value))
    positions = _positions(geometry)
    table_rows = positions.clamp(max=parameters.cos.shape[0] - 1)
    cos, sin = (table[table_rows].unsqueeze(2) for table in (parameters.cos, parameters.sin))
    query = _rotate(_norm(query, parameters.query_norm), cos, sin)
    key = _rotate(_norm(key, parameters.key_norm), cos, sin)
    locations = _locations(positions, geometry)
    for pool, new in ((keys, key), (values, value)):
        pool.view(-1, *pool.shape[2:]).index_copy_(0, locations.flatten(), new.flatten(0, 1).to(pool.dtype))
    return query, gate


def _norm(heads: Tensor, norm: NormScale) -> Tensor:
    wide = heads.float()
    factor = torch.rsqrt(wide.square().mean(-1, keepdim=True) + norm.epsilon)
    return (wide * factor * norm.weight).to(heads.dtype)


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turning, rest = heads.split_with_sizes((cos.shape[-1], heads.shape[-1] - cos.shape[-1]), -1)
    swapped = turning.roll(cos.shape[-1] // 2, -1)
    return torch.cat(((turning * cos + swapped * sin).to(heads.dtype), rest), -1)


def _locations(positions: Tensor, geometry: StepGeometry) -> Tensor:
    """Flat place of each position in the pages; in the scrap page for those past the page table."""
    table = geometry.page_table[geometry.slots.long()].long()
    number = positions // geometry.page_size
    pages = table.gather(1, number.clamp(max=table.shape[1] - 1))
    pages = pages.where(number < table.shape[1], 0)
    return pages * geometry.page_size + positions % geometry.page_size


def _attend(
    query: Tensor,
    gate: Tensor | None,
    positions: Tensor,
    parameters: AttentionParameters,
    keys: Tensor,
    values: Tensor,
    geometry: StepGeometry,
) -> Tensor:
    """[batch, rows, heads, head_dim] in the dtype of the query; scores and sums in float32."""
    table = geometry.page_table[geometry.slots.long()].long()
    seen = torch.arange(table.shape[1] * geometry.page_size, device=table.device) <= positions.unsqueeze(-1)
    group = parameters.heads // parameters.key_value_heads
    # Positions that no row sees may hold anything, also what is not a number.
    unseen = ~seen.any(1)[:, :, None, None]
    key, value = (pool[table].flatten(1, 2).float().masked_fill(unseen, 0.0) for pool in (keys, values))
    batch, rows, _, width = query.shape
    grouped = query.float().view(batch, rows, parameters.key_value_heads, group, width) * width**-0.5
    scores = torch.einsum("brkgd,bpkd->bkgrp", grouped, key)
    weights = scores.masked_fill(~seen[:, None, None], -torch.inf).softmax(-1)
    attended = torch.einsum("bkgrp,bpkd->brkgd", weights, value).flatten(2, 3)
    if gate is not None:
        attended = attended * torch.sigmoid(gate.float())
    return attended.to(query.dtype)
