"""Deep recursion has room, errors come back, and the limit is put back."""

from __future__ import annotations

import sys

import pytest

from draftproof.stacks.vllm.code.deep_calls import with_deep_calls


def depth(levels: int) -> int:
    return 0 if levels == 0 else 1 + depth(levels - 1)


def test_recursion_beyond_pythons_limit() -> None:
    before = sys.getrecursionlimit()
    assert with_deep_calls(lambda: depth(before + 1000)) == before + 1000
    assert sys.getrecursionlimit() == before


def test_an_error_is_the_callers() -> None:
    before = sys.getrecursionlimit()
    with pytest.raises(ZeroDivisionError):
        with_deep_calls(lambda: 1 // 0)
    assert sys.getrecursionlimit() == before
