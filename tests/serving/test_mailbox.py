"""Chunks on their way to a slow reader: all of the text, in order, failures last."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from draftproof.engine.request import TokenLogprob
from draftproof.serving.mailbox import Mailbox
from draftproof.serving.messages import FailureKind, GenerationChunk, GenerationFailure, GenerationUsage
from draftproof.speculation.acceptance import AcceptanceCounts, FinishReason

Result = TypeVar("Result")
FAILURE = GenerationFailure("a", FailureKind.FAULT, "lost")


def played(scenario: Coroutine[Any, Any, Result]) -> Result:
    """Run it, but not for ever."""
    return asyncio.run(asyncio.wait_for(scenario, 5.0))


def chunk(number: int) -> GenerationChunk:
    usage = GenerationUsage(3, 0, number, AcceptanceCounts())
    logprob = TokenLogprob(number, -1.0 * number, ())
    return GenerationChunk("a", f"t{number} ", (number,), (logprob,), usage)


def test_a_fast_reader_gets_every_chunk() -> None:
    async def fast() -> None:
        box = Mailbox()
        for number in range(3):
            box.put(chunk(number))
            assert await box.take() == chunk(number)

    played(fast())


def test_chunks_that_wait_become_one_that_ends_like_the_last() -> None:
    async def slow() -> GenerationChunk | GenerationFailure:
        box = Mailbox()
        box.put(chunk(1))
        box.put(chunk(2))
        box.put(replace(chunk(3), finish_reason=FinishReason.STOP, matched_stop="x"))
        return await box.take()

    taken = played(slow())
    assert isinstance(taken, GenerationChunk)
    assert (taken.text, taken.token_ids) == ("t1 t2 t3 ", (1, 2, 3))
    assert [each.token_id for each in taken.logprobs] == [1, 2, 3]
    assert taken.usage.completion_tokens == 3
    assert (taken.finish_reason, taken.matched_stop) == (FinishReason.STOP, "x")


def test_a_failure_comes_after_what_was_made_before_it_and_stays() -> None:
    async def failing() -> list[GenerationChunk | GenerationFailure]:
        box = Mailbox()
        box.put(chunk(1))
        box.put(FAILURE)
        return [await box.take() for _ in range(3)]

    assert played(failing()) == [chunk(1), FAILURE, FAILURE]
