"""Paged attention with few operations, for one sequence on a CPU whose pages are consecutive.

Its positions then lie in one piece: they are read and written as views of the pools, without tables.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def write_pages(cache: Tensor, rows: Tensor, location: int) -> None:
    """Store one sequence's rows from a location on.

    Args:
        cache: [pages, page_size, heads, head_dim]; changed.
        rows: [1, rows, heads, head_dim].
        location: flat place of the first row, page * page_size + offset.
    """
    _, count, heads, width = rows.shape
    step = heads * width
    cache.as_strided((1, count, heads, width), (step, step, width, 1), location * step).copy_(rows)


def paged_attention(query: Tensor, keys: Tensor, values: Tensor, origin: int, start: int) -> Tensor:
    """Attend; the window's own keys and values are in the pages already.

    Args:
        query: [1, rows, heads, head_dim], not scaled.
        keys: [pages, page_size, key_value_heads, head_dim].
        values: as `keys`.
        origin: flat place of the sequence's position 0; the others follow it.
        start: committed positions before the window.

    Returns:
        [1, rows, heads, head_dim] in the dtype of `query`; softmax in float32.
    """
    _, rows, heads, width = query.shape
    key_value_heads = keys.shape[2]
    context, step, offset = start + rows, key_value_heads * width, origin * key_value_heads * width
    key = keys.as_strided((key_value_heads, width, context), (width, 1, step), offset)
    value = values.as_strided((key_value_heads, context, width), (width, step, 1), offset)
    scaled = query * width**-0.5
    if rows == 1:
        weights = _weights(torch.bmm(scaled.view(key_value_heads, -1, width), key))
        return torch.bmm(weights, value).view(1, 1, heads, width)
    # One matrix of (rows x heads of the group) per key/value head.
    grouped = (
        scaled.view(rows, key_value_heads, -1, width).transpose(0, 1).reshape(key_value_heads, -1, width)
    )
    scores = torch.bmm(grouped, key)
    scores.view(key_value_heads, rows, -1, context)[..., start:].add_(
        _future_mask(rows, scores.dtype, scores.device)
    )
    attended = torch.bmm(_weights(scores), value)
    by_row = attended.view(key_value_heads, rows, -1, width).transpose(0, 1)
    return by_row.reshape(1, rows, heads, width)


def _weights(scores: Tensor) -> Tensor:
    """Softmax in float32, in the dtype of the scores."""
    if scores.dtype is torch.float32:
        return scores.softmax(-1)
    return scores.float().softmax(-1).to(scores.dtype)


@lru_cache(maxsize=64)
def _future_mask(rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[rows, 1, rows], -inf where a column's row comes after a row."""
    return torch.full((rows, rows), -torch.inf, dtype=dtype, device=device).triu_(1).unsqueeze(1)
