"""A soak that could not fail would prove nothing: wrong answers, errors and leftovers are found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from openai import AsyncOpenAI

import draftproof
from benchmarks.soak_cases import Endpoint, catalogue
from benchmarks.soak_report import Sample, faults_of, figures_of
from benchmarks.soak_traffic import Answer, Manner, Tally, ask, client_loop
from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.serving.client import GenerationFailed
from draftproof.serving.messages import FailureKind, GenerationRequest
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.tokenizer import Tokenizer
from tests.support import fake_engine
from tests.support.fake_engine import FakeEngineClient, Piece
from tests.support.http_server import serving

TINY = Path(draftproof.__file__).parent / "data" / "tiny"
PLAIN = tuple(case for case in catalogue(13) if case.kind in ("greedy chat", "stop strings"))
INFORMATION: dict[str, Any] = {
    "load": {"running": 0, "waiting": 0},
    "cache": {"pages_used": 0, "slots_used": 0, "prefix_hit_tokens": 0, "prefix_queried_tokens": 0},
    "requests": [],
    "counters": {"steps": 0},
    "health": {"state": "ready", "reasons": []},
    "alarms": [],
    "speculation": {"total": {}},
}


def answers(*texts: str) -> Callable[[GenerationRequest], fake_engine.Answer]:
    """An engine's answers, one text after another, the last one for ever."""
    left = list(texts)

    def answer(request: GenerationRequest) -> fake_engine.Answer:
        text = left.pop(0) if len(left) > 1 else left[0]
        if text == "fails":
            return fake_engine.Answer((), error=GenerationFailed(FailureKind.FAULT, "it broke"))
        return fake_engine.Answer((Piece(text[:2]), Piece(text[2:])))

    return answer


def soaked(answer: Callable[[GenerationRequest], fake_engine.Answer]) -> Tally:
    """One client asks a server for a moment; the right answers are those of its first requests."""
    settings = ServerSettings(("tiny",), "tiny", 0)
    engine = FakeEngineClient(answer=answer)
    tally = Tally()

    async def run(url: str) -> None:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            expected = {
                case: await ask(client, "tiny", case.without_speculation(), Manner.WHOLE) for case in PLAIN
            }
            await client_loop(client, "tiny", expected, tally, random.Random(1), monotonic() + 0.5)

    with serving(create_app(engine, Tokenizer.load(TINY), ChatTemplate.load(TINY), settings)) as url:
        asyncio.run(run(url))
    return tally


def figures(tally: Tally, **changed: Any) -> dict[str, Any]:
    """Figures of a run that went well but for the tally and what is said."""
    samples = [Sample(float(second), {"server": 100.0}, 1, 0, 0) for second in range(8)]
    made = figures_of(tally, samples, INFORMATION, INFORMATION)
    return {**made, "exit_code_after_sigterm": 0, **changed}


def test_right_answers_in_every_manner_are_no_fault() -> None:
    tally = soaked(answers("the same"))
    assert len(tally.seconds) > 3
    assert {Manner.WHOLE.value, Manner.STREAM.value, Manner.LEAVE.value} <= set(tally.manners)
    assert faults_of(figures(tally)) == []


def test_another_text_is_found() -> None:
    tally = soaked(answers("right", "right", "wrong"))
    assert tally.mismatches[0]["got"] == vars(Answer("wrong", "", (), "stop", 2))
    assert "answers differ" in faults_of(figures(tally))[0]


def test_a_request_that_fails_is_found() -> None:
    tally = soaked(answers("right", "right", "fails"))
    faults = faults_of(figures(tally))
    assert "no whole answer came" in faults
    assert any("it broke" in fault for fault in faults)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"left_in_server": {"running": 0, "slots_used": 2}}, "left in the server: {'slots_used': 2}"),
        ({"megabytes_last_quarter": 104.0}, "memory grew from 100.0 to 104.0 MB"),
        ({"health": {"state": "failed", "reasons": []}}, "health is"),
        ({"exit_code_after_sigterm": -9}, "exit code -9"),
    ],
)
def test_what_is_left_grows_or_ends_badly_is_found(changed: dict[str, Any], fault: str) -> None:
    good = Tally(seconds=[1.0])
    assert faults_of(figures(good)) == []
    assert fault in faults_of(figures(good, **changed))[0]


def test_a_catalogue_is_the_same_every_time_and_holds_every_kind() -> None:
    first, second = catalogue(26), catalogue(26)
    assert [vars(case) for case in first] == [vars(case) for case in second]
    assert len({case.kind for case in first}) == 13
    assert {case.endpoint for case in first} == set(Endpoint)
    assert all("speculative" not in case.further for case in first)
