"""Several choices of one request as one stream."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from draftproof.runtime.sampling import SamplingParameters
from draftproof.server.choices import choice_chunks
from draftproof.serving.client import GenerationFailed
from draftproof.serving.messages import FailureKind, GenerationRequest
from tests.support.fake_engine import Answer, FakeEngineClient, Piece


def requests_of(count: int) -> list[GenerationRequest]:
    """Requests that differ in their ids."""
    return [GenerationRequest(str(index), (1,), SamplingParameters()) for index in range(count)]


async def texts_of(engine: FakeEngineClient, count: int) -> dict[int, str]:
    """The text of each choice."""
    texts = dict.fromkeys(range(count), "")
    async for item in choice_chunks(engine, requests_of(count)):
        texts[item.index] += item.chunk.text
    return texts


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_choice_gets_its_own_chunks_in_order(count: int) -> None:
    engine = FakeEngineClient(
        lambda request: Answer(tuple(Piece(f"{request.request_id}{step}") for step in "abc"))
    )
    assert asyncio.run(texts_of(engine, count)) == {i: f"{i}a{i}b{i}c" for i in range(count)}


@pytest.mark.parametrize("count", [1, 3])
def test_closing_aborts_every_choice(count: int) -> None:
    engine = FakeEngineClient(lambda request: Answer(never_ends=True))

    async def leave_early() -> None:
        async with aclosing(choice_chunks(engine, requests_of(count))) as chunks:
            async for _ in chunks:
                break

    asyncio.run(leave_early())
    assert sorted(engine.aborted) == [request.request_id for request in requests_of(count)]


@pytest.mark.parametrize("count", [1, 3])
def test_one_failure_ends_all(count: int) -> None:
    failure = GenerationFailed(FailureKind.FAULT, "broken")

    def answer(request: GenerationRequest) -> Answer:
        return Answer(error=failure) if request.request_id == "0" else Answer(never_ends=True)

    engine = FakeEngineClient(answer)
    with pytest.raises(GenerationFailed, match="broken"):
        asyncio.run(texts_of(engine, count))
    assert sorted(engine.aborted) == [str(index) for index in range(1, count)]
