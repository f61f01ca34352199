"""The same count for tokens that are on the host already, as the tokens of a CPU's step are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile


def count_accepted(drafts: Sequence[Sequence[int]], sampled: Sequence[Sequence[int]]) -> list[int]:
    """Count each window's accepted drafts.

    Args:
        drafts: per window, its drafts.
        sampled: per window, the target's own tokens at each row, one more than drafts.
    """
    return [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(chain, tokens, strict=False)))
        for chain, tokens in zip(drafts, sampled, strict=True)
    ]
