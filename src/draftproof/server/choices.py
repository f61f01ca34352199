"""The choices of one request: each is a request to the engine; their chunks come as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from draftproof.serving.client import EngineClient
from draftproof.serving.messages import GenerationChunk, GenerationRequest

Chunks = AsyncGenerator[GenerationChunk, None]


@dataclass(frozen=True)
class ChoiceChunk:
    """A chunk of one choice.

    Attributes:
        index: of the choice.
        chunk: what it adds.
    """

    index: int
    chunk: GenerationChunk


async def choice_chunks(
    client: EngineClient, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[ChoiceChunk, None]:
    """Chunks of all requests as they come; closing it aborts all of them.

    Raises:
        QueueFull, GenerationFailed: of the first request that fails; the others are aborted.
    """
    streams = _together(client, requests) if len(requests) > 1 else _alone(client, requests[0])
    async with aclosing(streams):
        async for chunk in streams:
            yield chunk


async def _alone(client: EngineClient, request: GenerationRequest) -> AsyncGenerator[ChoiceChunk, None]:
    # Protocols say AsyncIterator; what has to be closed is the generator behind it.
    async with aclosing(cast(Chunks, client.stream(request))) as chunks:
        async for chunk in chunks:
            yield ChoiceChunk(0, chunk)


async def _together(
    client: EngineClient, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[ChoiceChunk, None]:
    arrived: asyncio.Queue[ChoiceChunk | asyncio.Task[None]] = asyncio.Queue()

    async def pump(index: int, request: GenerationRequest) -> None:
        async with aclosing(cast(Chunks, client.stream(request))) as chunks:
            async for chunk in chunks:
                arrived.put_nowait(ChoiceChunk(index, chunk))

    pumps = [asyncio.create_task(pump(index, request)) for index, request in enumerate(requests)]
    for task in pumps:
        task.add_done_callback(arrived.put_nowait)
    try:
        running = len(pumps)
        while running:
            item = await arrived.get()
            if isinstance(item, ChoiceChunk):
                yield item
            else:
                # Raises what ended it, if something did.
                item.result()
                running -= 1
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
