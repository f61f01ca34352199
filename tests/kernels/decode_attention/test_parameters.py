"""How many programs share a context."""

from __future__ import annotations

import pytest

from draftproof.kernels.decode_attention.parameters import choose_splits


@pytest.mark.parametrize(
    ("batch", "longest", "splits"),
    [(1, 1024, 17), (1, 32_768, 67), (4, 1024, 17), (16, 1024, 9), (64, 1024, 1), (1, 64, 1)],
)
def test_splits_of_the_35b(batch: int, longest: int, splits: int) -> None:
    """As was best on an H200; the last of several is for the window's own rows."""
    assert choose_splits(batch, 2, longest) == splits
