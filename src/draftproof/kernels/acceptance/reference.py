"""Acceptance in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def count_accepted(drafts: Tensor, draft_counts: Tensor, sampled: Tensor) -> Tensor:
    """Count each window's accepted drafts.

    Args:
        drafts: [batch, drafts] int64; entries from a window's draft count on are padding and mean nothing.
        draft_counts: [batch] int64, 0 to `drafts`.
        sampled: [batch, drafts + 1] int64, the target's own token at each row; row 0 follows the last
            committed token, row i follows draft i. Rows after the draft count are padding.

    Returns:
        [batch] int64.
    """
    columns = torch.arange(drafts.shape[1], device=drafts.device)
    equal = (drafts == sampled[:, :-1]) & (columns < draft_counts.unsqueeze(1))
    return equal.long().cumprod(1).sum(1)
