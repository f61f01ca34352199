"""Chunks of one request on their way to a reader that may be slower than the engine."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from draftproof.serving.messages import GenerationChunk, GenerationFailure


class Mailbox:
    """Holds what a reader has not taken. Chunks that wait become one chunk: as much text, fewer writes.

    All calls belong to one event loop.
    """

    def __init__(self) -> None:
        self._chunk: GenerationChunk | None = None
        self._failure: GenerationFailure | None = None
        self._filled = asyncio.Event()

    def put(self, item: GenerationChunk | GenerationFailure) -> None:
        """Add what came; nothing counts after a failure or a last chunk."""
        if isinstance(item, GenerationFailure):
            self._failure = self._failure or item
        else:
            self._chunk = item if self._chunk is None else joined(self._chunk, item)
        self._filled.set()

    async def take(self) -> GenerationChunk | GenerationFailure:
        """All that waits; a failure comes after the chunks before it."""
        await self._filled.wait()
        chunk, self._chunk = self._chunk, None
        if chunk is None:
            assert self._failure is not None
            return self._failure
        if self._failure is None:
            self._filled.clear()
        return chunk


def joined(first: GenerationChunk, second: GenerationChunk) -> GenerationChunk:
    """Two chunks that follow each other, as one."""
    return replace(
        second,
        text=first.text + second.text,
        token_ids=first.token_ids + second.token_ids,
        logprobs=first.logprobs + second.logprobs,
    )
