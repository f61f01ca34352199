"""What answers say about their cost: `usage`, and acceptance in the shape that load tools read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.server.conftest import Post
from tests.support.events import events_of
from tests.support.fake_engine import READY, Answer, FakeEngineClient, Piece

PIECES = (
    Piece("a", (1, 2, 3), accepted=2),
    Piece("b", (4,), accepted=0),
    Piece("c", (5, 6, 7, 8), accepted=3),
)


@pytest.fixture(autouse=True)
def answer(engine: FakeEngineClient) -> None:
    """Three passes of three drafts, of which 2, 0 and 3 are accepted."""
    engine.answer = lambda request: Answer(PIECES, cached_tokens=1)


def test_usage_counts_tokens_and_drafts(complete: Post) -> None:
    assert complete(prompt=[1, 2]).json()["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 8,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "accepted_prediction_tokens": 5,
            "rejected_prediction_tokens": 4,
        },
    }


def test_a_prompt_counts_once_however_many_choices_it_has(complete: Post) -> None:
    usage = complete(prompt=[[1, 2], [3, 4, 5]], n=2).json()["usage"]
    assert usage["prompt_tokens"] == 5
    assert usage["completion_tokens"] == 4 * 8
    assert usage["prompt_tokens_details"] == {"cached_tokens": 2}


def test_what_a_choice_finds_of_an_earlier_one_is_not_kept_from_before(
    complete: Post, engine: FakeEngineClient
) -> None:
    engine.answer = lambda request: Answer(PIECES, cached_tokens=len(engine.requests) - 1)
    assert complete(prompt=[1, 2], n=2).json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_acceptance_obeys_its_identities(complete: Post) -> None:
    found = complete().json()["metrics"]["speculative_decoding"]
    assert found == {
        "mean_acceptance_length": 1 + 5 / 3,
        "draft_acceptance_rate": 5 / 9,
        "acceptance_histogram": [1, 0, 1, 1],
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 5,
        "num_draft_tokens": 9,
        "num_spec_tokens": 3,
    }


def test_times_are_told_in_milliseconds(complete: Post) -> None:
    found = complete().json()["metrics"]
    assert (found["queue_time_ms"], found["time_to_first_token_ms"]) == (250.0, 750.0)


def test_acceptance_is_told_for_single_choices_alone(complete: Post) -> None:
    assert complete(n=2).json()["metrics"] is None


def test_a_stream_ends_with_usage_and_acceptance_when_asked(complete: Post) -> None:
    events = events_of(complete(stream=True, stream_options={"include_usage": True}).text)
    assert [event["usage"] for event in events[:-1]] == [None] * 3
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 8
    assert events[-1]["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] == 5


def test_a_stream_without_usage_tells_acceptance_in_its_last_chunk(complete: Post) -> None:
    events = events_of(complete(stream=True).text)
    assert [("metrics" in event) for event in events] == [False, False, True]


def test_every_chunk_tells_how_many_tokens_there_are_when_asked(complete: Post) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = events_of(complete(stream=True, stream_options=options).text)
    assert [event["usage"]["completion_tokens"] for event in events] == [3, 4, 8, 8]


def test_made_up_acceptance_is_said_in_every_answer(complete: Post, engine: FakeEngineClient) -> None:
    engine.ready = replace(READY, simulated_accept_length=2.5)
    whole = complete()
    assert "accept length 2.5" in whole.json()["warning"]
    assert whole.headers["x-draftproof-warning"] == whole.json()["warning"]
    stream = complete(stream=True)
    assert all(event["warning"] == whole.json()["warning"] for event in events_of(stream.text))
    assert stream.headers["x-draftproof-warning"] == whole.json()["warning"]
