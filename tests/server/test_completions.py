"""`/v1/completions`: what reaches the engine, and what its chunks become."""

from __future__ import annotations

import pytest

from draftproof.engine.request import TokenLogprob
from draftproof.server.settings import ServerSettings
from draftproof.speculation.acceptance import FinishReason
from draftproof.text.tokenizer import Tokenizer
from tests.server.conftest import Post
from tests.support.events import events_of
from tests.support.fake_engine import Answer, FakeEngineClient, Piece


def test_a_whole_answer_has_the_text_of_all_steps(complete: Post, engine: FakeEngineClient) -> None:
    answer = complete(model="tiny").json()
    assert answer["object"] == "text_completion"
    assert answer["model"] == "tiny"
    assert answer["choices"] == [
        {"index": 0, "text": "Hello world", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    ]


def test_a_stream_adds_up_to_the_whole_answer(complete: Post) -> None:
    events = events_of(complete(stream=True).text)
    assert [event["choices"][0]["text"] for event in events] == ["Hello", " world"]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, "stop"]
    assert "usage" not in events[0]


def test_a_text_is_encoded_by_the_tokenizer(
    complete: Post, engine: FakeEngineClient, tokenizer: Tokenizer
) -> None:
    complete(prompt="A prompt of some words")
    assert engine.requests[0].prompt_ids == tuple(tokenizer.encode("A prompt of some words"))


def test_token_ids_go_to_the_engine_as_they_are(complete: Post, engine: FakeEngineClient) -> None:
    complete(prompt=[5, 6, 7])
    assert engine.requests[0].prompt_ids == (5, 6, 7)


@pytest.mark.parametrize("prompt", [["one", "two"], [[1, 2], [3]]])
def test_several_prompts_have_their_choices_in_order(
    complete: Post, engine: FakeEngineClient, prompt: list[object]
) -> None:
    engine.answer = lambda request: Answer((Piece(f"{len(request.prompt_ids)} tokens"),))
    choices = complete(prompt=prompt, n=2).json()["choices"]
    lengths = [len(request.prompt_ids) for request in engine.requests]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert [choice["text"] for choice in choices] == [f"{length} tokens" for length in lengths]
    assert lengths[0] == lengths[1]
    assert len({request.request_id for request in engine.requests}) == 4


def test_choices_of_one_prompt_differ_in_their_noise_alone(complete: Post, engine: FakeEngineClient) -> None:
    complete(n=3, seed=7, temperature=0.5)
    assert [request.parameters.seed for request in engine.requests] == [7, 8, 9]
    assert len({request.prompt_ids for request in engine.requests}) == 1


def test_the_default_length_is_that_of_openai(complete: Post, engine: FakeEngineClient) -> None:
    complete()
    assert engine.requests[0].parameters.max_tokens == 16


def test_echo_puts_the_prompt_before_the_output(complete: Post) -> None:
    assert complete(echo=True).json()["choices"][0]["text"] == "HiHello world"
    events = events_of(complete(echo=True, stream=True).text)
    assert "".join(event["choices"][0]["text"] for event in events) == "HiHello world"


def test_a_stop_string_is_told(complete: Post, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer(matched_stop=request.parameters.stop_strings[1])
    choice = complete(stop=["a", "END"]).json()["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "END")


def test_an_output_that_reaches_its_length_says_so(complete: Post, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer(finish_reason=FinishReason.LENGTH)
    assert complete().json()["choices"][0]["finish_reason"] == "length"


def test_log_probabilities_come_with_offsets_into_the_text(
    complete: Post, engine: FakeEngineClient, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode("Hello world")
    logprobs = tuple(
        TokenLogprob(token_id, -0.5 * index, ((token_id, -0.5 * index), (3, -4.0)))
        for index, token_id in enumerate(ids)
    )
    engine.answer = lambda request: Answer((Piece("Hello world", tuple(ids), logprobs),))
    found = complete(logprobs=2).json()["choices"][0]["logprobs"]
    texts = [tokenizer.decode([token_id]) for token_id in ids]
    assert found["tokens"] == texts
    assert found["token_logprobs"] == [-0.5 * index for index in range(len(ids))]
    assert found["text_offset"] == [len("".join(texts[:index])) for index in range(len(ids))]
    assert found["top_logprobs"][0] == {texts[0]: 0.0, tokenizer.decode([3]): -4.0}
    assert engine.requests[0].parameters.logprobs == 2


def test_a_step_without_text_is_told_when_it_has_token_ids(complete: Post, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer((Piece("", (9, 10)), Piece("é", (11,))))
    silent = events_of(complete(stream=True).text)
    assert [event["choices"][0]["text"] for event in silent] == ["é"]
    told = events_of(complete(stream=True, return_token_ids=True, prompt=[4]).text)
    assert [event["choices"][0]["token_ids"] for event in told] == [[9, 10], [11]]
    assert told[0]["choices"][0]["prompt_token_ids"] == [4]
    assert "prompt_token_ids" not in told[1]["choices"][0]


def test_more_outputs_than_allowed_are_refused(complete: Post, settings: ServerSettings) -> None:
    prompts = ["x"] * (settings.max_choices // 2)
    assert complete(prompt=prompts, n=3).json()["error"]["param"] == "n"
    assert complete(prompt=["x"] * (settings.max_prompts + 1)).status_code == 400


def test_echo_with_logprobs_is_refused(complete: Post) -> None:
    error = complete(echo=True, logprobs=1).json()["error"]
    assert error["param"] == "echo"
    assert "log probabilities of the prompt" in error["message"]
