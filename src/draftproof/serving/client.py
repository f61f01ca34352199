"""The engine as the HTTP server sees it, whatever stands behind: one small protocol and its errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from draftproof.engine.status import EngineStatus
from draftproof.errors import DraftproofError
from draftproof.serving.messages import EngineReady, FailureKind, GenerationChunk, GenerationRequest


class HealthState(Enum):
    """Whether requests are answered."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    """Requests are answered, but an alarm is on."""
    DRAINING = "draining"
    """What runs is finished; nothing new is taken."""
    FAILED = "failed"
    """The engine crashed or hangs."""


@dataclass(frozen=True)
class Health:
    """State of the engine.

    Attributes:
        state: in one word.
        reasons: one line each; empty when all is well.
    """

    state: HealthState
    reasons: tuple[str, ...] = ()


class QueueFull(DraftproofError):
    """No room for another request now.

    Args:
        message: with the limit.
        retry_after: seconds after which trying again makes sense.
    """

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class GenerationFailed(DraftproofError):
    """A request ended without an answer, see `FailureKind`."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class EngineClient(Protocol):
    """Requests in, chunks out."""

    @property
    def ready(self) -> EngineReady:
        """What the engine said when it was made."""
        ...

    @property
    def status(self) -> EngineStatus:
        """The latest; never older than a second while the engine lives."""
        ...

    @property
    def health(self) -> Health:
        """Of the engine."""
        ...

    def stream(self, request: GenerationRequest) -> AsyncIterator[GenerationChunk]:
        """Run a request; closing the iterator (or cancelling its task) aborts it.

        Raises:
            QueueFull: from the first `anext`.
            GenerationFailed: at any time.
        """
        ...

    async def reset_prefix_cache(self) -> None:
        """Forget kept prompts. Raises GenerationFailed(STOPPED) when the engine is gone."""
        ...
