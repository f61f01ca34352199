"""Clients of a soak: they ask, read to the end or leave in the middle, and say what they got."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from typing import Any

from openai import APIError, APIStatusError, AsyncOpenAI

from benchmarks.soak_cases import Case, Endpoint

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Answer:
    """What a request got, as far as it has to be the same every time.

    Attributes:
        content: the text.
        reasoning: the text before it.
        calls: name and arguments of each tool call.
        finish_reason: why it ended.
        completion_tokens: how many tokens it took.
    """

    content: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    finish_reason: str | None
    completion_tokens: int


class Manner(Enum):
    """How a client takes its answer."""

    WHOLE = "whole"
    STREAM = "stream"
    SLOW_STREAM = "slow stream"
    LEAVE = "leave in the middle"


@dataclass
class Tally:
    """What the clients saw.

    Attributes:
        manners: requests by manner.
        kinds: answers by kind.
        mismatches: answers that were not the right one, the first ones in full.
        mismatch_count: all of them.
        errors: requests that failed, by what was said.
        retries: times that the queue was full.
        tokens: of whole answers.
        seconds: of whole answers, in order of their ends.
    """

    manners: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    mismatches: list[dict[str, Any]] = field(default_factory=list)
    mismatch_count: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    tokens: int = 0
    seconds: list[float] = field(default_factory=list)


@dataclass
class _Parts:
    """An answer as its chunks come."""

    content: str = ""
    reasoning: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish_reason: str | None = None
    completion_tokens: int = 0

    def answer(self) -> Answer:
        calls = tuple((name, arguments) for _, (name, arguments) in sorted(self.calls.items()))
        return Answer(self.content, self.reasoning, calls, self.finish_reason, self.completion_tokens)


async def ask(client: AsyncOpenAI, model: str, case: Case, manner: Manner) -> Answer:
    """Ask once.

    Raises:
        openai.APIError: the server refused or failed.
    """
    fields = {"model": model, **case.fields, "extra_body": case.further}
    create = client.chat.completions.create if case.endpoint is Endpoint.CHAT else client.completions.create
    if manner is Manner.WHOLE:
        return _of_whole(await create(**fields))
    stream = await create(**fields, stream=True, stream_options={"include_usage": True})
    parts = _Parts()
    leave_after = random.randrange(1, 6) if manner is Manner.LEAVE else None
    async for chunk in _chunks(stream):
        _take(parts, chunk)
        if manner is Manner.SLOW_STREAM:
            await asyncio.sleep(0.05)
        if leave_after is not None:
            leave_after -= 1
            if leave_after <= 0:
                break
    await stream.close()
    return parts.answer()


async def client_loop(
    client: AsyncOpenAI,
    model: str,
    expected: dict[Case, Answer],
    tally: Tally,
    generator: random.Random,
    until: float,
) -> None:
    """One client: a random request in a random manner, again and again."""
    cases = list(expected)
    manners = list(Manner)
    weights = [30, 45, 5, 20]
    while monotonic() < until:
        case = generator.choice(cases)
        manner = generator.choices(manners, weights)[0]
        tally.manners[manner.value] += 1
        begin = monotonic()
        try:
            answer = await ask(client, model, case, manner)
        except APIStatusError as error:
            if error.status_code == 429:
                tally.retries += 1
                await asyncio.sleep(float(error.response.headers.get("retry-after", 1)))
            else:
                tally.errors[f"{error.status_code} {error.message}"[:300]] += 1
            continue
        except APIError as error:
            tally.errors[f"{type(error).__name__} {error}"[:300]] += 1
            continue
        if manner is not Manner.LEAVE:
            tally.seconds.append(round(monotonic() - begin, 4))
            _judge(case, manner, answer, expected[case], tally)


def _judge(case: Case, manner: Manner, answer: Answer, expected: Answer, tally: Tally) -> None:
    tally.kinds[case.kind] += 1
    tally.tokens += answer.completion_tokens
    if answer == expected and REPLACEMENT not in answer.content:
        return
    tally.mismatch_count += 1
    if len(tally.mismatches) < 20:
        told = {"case": case.name, "kind": case.kind, "manner": manner.value}
        tally.mismatches.append({**told, "got": vars(answer), "expected": vars(expected)})


async def _chunks(stream: Any) -> AsyncIterator[Any]:
    async for chunk in stream:
        yield chunk


def _of_whole(completion: Any) -> Answer:
    choice = completion.choices[0]
    tokens = completion.usage.completion_tokens
    if not hasattr(choice, "message"):
        return Answer(choice.text, "", (), choice.finish_reason, tokens)
    message = choice.message
    calls = tuple((call.function.name, call.function.arguments) for call in message.tool_calls or ())
    reasoning = getattr(message, "reasoning_content", None) or ""
    return Answer(message.content or "", reasoning, calls, choice.finish_reason, tokens)


def _take(parts: _Parts, chunk: Any) -> None:
    if chunk.usage is not None:
        parts.completion_tokens = chunk.usage.completion_tokens
    if not chunk.choices:
        return
    choice = chunk.choices[0]
    parts.finish_reason = choice.finish_reason or parts.finish_reason
    if not hasattr(choice, "delta"):
        parts.content += choice.text
        return
    parts.content += choice.delta.content or ""
    parts.reasoning += getattr(choice.delta, "reasoning_content", None) or ""
    for call in choice.delta.tool_calls or ():
        kept = parts.calls.setdefault(call.index, ["", ""])
        kept[0] += call.function.name or ""
        kept[1] += call.function.arguments or ""
