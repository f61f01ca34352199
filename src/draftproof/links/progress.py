"""How a link says how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of long steps. Called from several threads."""

    def advance(self, step: str, done: int, total: int) -> None:
        """`done` of `total` parts of the step are finished."""


class NoProgress:
    """Progress that nobody watches."""

    def advance(self, step: str, done: int, total: int) -> None:
        """Does nothing."""
