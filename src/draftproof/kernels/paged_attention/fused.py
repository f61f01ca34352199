"""Paged attention through torch's fused attention: for prompts on a GPU, where scores never reach memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def paged_attention(
    query: Tensor, keys: Tensor, values: Tensor, page_table: Tensor, starts: tuple[int, ...]
) -> Tensor:
    """As `reference.paged_attention`; a sequence's pages are gathered first. Reads nothing on the host.

    Args:
        query: [batch, rows, heads, head_dim], not scaled.
        keys: [pages, page_size, key_value_heads, head_dim].
        values: as `keys`.
        page_table: [batch, pages per sequence] int64.
        starts: committed positions of each sequence before the window.

    Returns:
        [batch, rows, heads, head_dim] in the dtype of `query`.
    """
    outputs = []
    for index, start in enumerate(starts):
        context = start + query.shape[1]
        pages = page_table[index, : -(-context // keys.shape[1])]
        key, value = (pool[pages].flatten(0, 1)[:context].transpose(0, 1) for pool in (keys, values))
        outputs.append(_attend(query[index].transpose(0, 1), key, value).transpose(0, 1))
    return torch.stack(outputs)


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """[heads, rows, head_dim] over [key_value_heads, context, head_dim]; the last row sees all of it."""
    # Only here: it brings torch's compiler and Triton, which cost a CPU's commands a second to start.
    from torch.nn.attention.bias import causal_lower_right

    rows, context = query.shape[1], key.shape[1]
    mask = causal_lower_right(rows, context) if rows > 1 else None
    attended: Tensor = F.scaled_dot_product_attention(
        query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), attn_mask=mask, enable_gqa=True
    )
    return attended[0]
