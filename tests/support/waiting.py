"""Waiting for what happens in another thread or process."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

PATIENCE_SECONDS = 5.0


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fail when it does not within five seconds."""
    limit = monotonic() + PATIENCE_SECONDS
    while not condition():
        assert monotonic() < limit, "what the test waits for does not happen"
        sleep(0.005)
