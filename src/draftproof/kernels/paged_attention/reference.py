"""Plain torch definition of paged attention, and the write of new keys and values."""

from __future__ import annotations

import torch
from torch import Tensor


def write_pages(cache: Tensor, rows: Tensor, locations: Tensor) -> None:
    """Store one row per location.

    Args:
        cache: [pages, page_size, heads, head_dim]; changed.
        rows: [batch, rows, heads, head_dim].
        locations: [batch * rows] int64, page * page_size + offset.
    """
    cache.view(-1, *cache.shape[2:]).index_copy_(0, locations, rows.flatten(0, 1))


def paged_attention(
    query: Tensor, keys: Tensor, values: Tensor, page_table: Tensor, starts: tuple[int, ...]
) -> Tensor:
    """Attend; the window's own keys and values are in the pages already.

    Args:
        query: [batch, rows, heads, head_dim], not scaled.
        keys: [pages, page_size, key_value_heads, head_dim].
        values: [pages, page_size, key_value_heads, head_dim].
        page_table: [batch, pages per sequence] int64.
        starts: committed positions of each sequence before the window.

    Returns:
        [batch, rows, heads, head_dim] in the dtype of `query`; softmax in float32.
    """
    batch, rows, heads, head_dim = query.shape
    key_value_heads = keys.shape[2]
    group = heads // key_value_heads
    scale = head_dim**-0.5
    # One matrix of (rows x heads of the group) per key/value head.
    grouped = query.view(batch, rows, key_value_heads, group, head_dim).permute(0, 2, 1, 3, 4)
    grouped = grouped.reshape(batch, key_value_heads, rows * group, head_dim) * scale
    outputs = []
    for index, start in enumerate(starts):
        context = start + rows
        key, value = (_context(pool, page_table[index], context) for pool in (keys, values))
        scores = (grouped[index] @ key.permute(1, 2, 0)).float()
        if rows > 1:
            hidden = torch.ones(rows, context, dtype=torch.bool, device=query.device).triu_(start + 1)
            scores.view(key_value_heads, rows, group, context).masked_fill_(
                hidden[None, :, None], float("-inf")
            )
        weights = scores.softmax(-1).to(query.dtype)
        outputs.append(weights @ value.transpose(0, 1))
    output = outputs[0].unsqueeze(0) if batch == 1 else torch.stack(outputs)
    output = output.view(batch, key_value_heads, rows, group, head_dim).permute(0, 2, 1, 3, 4)
    return output.reshape(batch, rows, heads, head_dim)


def _context(pool: Tensor, pages: Tensor, length: int) -> Tensor:
    """First `length` positions of one sequence, [length, heads, head_dim]; a view when its pages are
    consecutive."""
    page_size = pool.shape[1]
    numbers = pages[: -(-length // page_size)].tolist()
    first = numbers[0]
    if numbers == list(range(first, first + len(numbers))):
        return pool[first : first + len(numbers)].view(-1, *pool.shape[2:])[:length]
    return pool[pages[: len(numbers)]].view(-1, *pool.shape[2:])[:length]
