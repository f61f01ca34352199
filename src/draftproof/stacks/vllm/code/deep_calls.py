"""Room for deep recursion: evaluated constructors call each other more deeply than Python allows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

_LEVELS = 15_000
"""Of Python's own calls; an evaluated call takes about ten, and vLLM's constructors nest some eighty deep."""
_STACK_BYTES = 256 << 20
_ONE_AT_A_TIME = threading.Lock()

T = TypeVar("T")


def with_deep_calls(job: Callable[[], T]) -> T:
    """The result of a job that is run in a thread of its own, with a large stack.

    The limit of recursion belongs to the whole process, so jobs wait for each other, and it is put back after
    each.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(job())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            errors.append(error)

    with _ONE_AT_A_TIME:
        limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
        try:
            sys.setrecursionlimit(max(limit, _LEVELS))
            thread = threading.Thread(target=run, name="deep-calls")
            thread.start()
            thread.join()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(limit)
    if errors:
        raise errors[0]
    return results[0]
