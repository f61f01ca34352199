"""How a fetch says how far it is."""

from __future__ import annotations

from typing import Protocol


class FetchProgress(Protocol):
    """Receives the progress of a fetch."""

    def advance(self, step: str, done: int, total: int) -> None:
        """`done` of `total` bytes are there; `total` is 0 when it is not known."""


class SilentProgress:
    """Progress that nobody watches."""

    def advance(self, step: str, done: int, total: int) -> None:
        """Does nothing."""
