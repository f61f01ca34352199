"""Conformance: OpenAI's own client, on a real connection, understands every kind of answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import openai
import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.serving.client import GenerationFailed, QueueFull
from draftproof.serving.messages import FailureKind
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.grammar import GrammarCompiler
from draftproof.text.tokenizer import SpecialTokens, Tokenizer
from tests.support.fake_engine import Answer, FakeEngineClient, Piece
from tests.support.http_server import serving
from tests.support.waiting import wait_for

USER: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
CALL = "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>"
PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if tools %}{{ tools }}{% endif %}"
)


class Sum(BaseModel):
    """A form for an answer."""

    total: int


@pytest.fixture
def url(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings, rules_check: GrammarCompiler
) -> Iterator[str]:
    """Of a server whose template takes tools."""
    template = ChatTemplate({"default": PLAIN}, SpecialTokens(()), "a test")
    app: FastAPI = create_app(engine, tokenizer, template, settings, rules_check=rules_check)
    with serving(app) as base:
        yield f"{base}/v1"


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    """OpenAI's client; it does not try again."""
    with OpenAI(base_url=url, api_key="none", max_retries=0) as made:
        yield made


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny", "other/name"]
    assert client.models.retrieve("other/name").owned_by == "draftproof"


def test_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=USER)
    assert answer.choices[0].message.content == "Hello world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 2
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.rejected_prediction_tokens == 6


def test_streamed_chat(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=USER, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello world"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2


def test_the_clients_own_accumulation(client: OpenAI, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer(tuple(Piece(letter) for letter in f"Now:\n{CALL}\n{CALL}"))
    with client.chat.completions.stream(model="tiny", messages=USER, tools=[TOOL]) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert message.content is not None
    assert message.content.strip() == "Now:"
    assert message.tool_calls is not None
    assert [json.loads(call.function.arguments) for call in message.tool_calls] == [{"a": 2}, {"a": 2}]


def test_a_form_that_is_parsed_by_the_client(client: OpenAI, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer((Piece('{"total": 3}'),))
    answer = client.chat.completions.parse(model="tiny", messages=USER, response_format=Sum)
    assert answer.choices[0].message.parsed == Sum(total=3)
    rules = engine.requests[0].rules
    assert rules is not None
    assert rules.grammar is not None
    assert json.loads(rules.grammar.text)["required"] == ["total"]


def test_a_whole_turn_with_a_tool(client: OpenAI, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer((Piece(CALL),))
    first = client.chat.completions.create(model="tiny", messages=USER, tools=[TOOL], tool_choice="required")
    assert first.choices[0].finish_reason == "tool_calls"
    asked = first.choices[0].message
    assert asked.tool_calls is not None
    engine.answer = lambda request: Answer()
    second = client.chat.completions.create(
        model="tiny",
        messages=[
            *USER,
            asked.to_dict(),  # type: ignore[list-item]
            {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "4"},
        ],
        tools=[TOOL],
    )
    assert second.choices[0].message.content == "Hello world"


def test_completions(client: OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=["a", "b"], n=2, max_tokens=5)
    assert [choice.text for choice in answer.choices] == ["Hello world"] * 4
    chunks = list(client.completions.create(model="tiny", prompt=[1, 2, 3], stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello world"


def test_fields_beyond_openais(client: OpenAI, engine: FakeEngineClient) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=USER, extra_body={"top_k": 3, "speculative": False, "ignore_eos": True}
    )
    assert engine.requests[0].draft_tokens == 0
    assert engine.requests[0].parameters.top_k == 3
    metrics = answer.to_dict()["metrics"]
    assert isinstance(metrics, dict)
    assert "speculative_decoding" in metrics


def test_the_async_client(url: str) -> None:
    async def both() -> tuple[str | None, str]:
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            whole = await client.chat.completions.create(model="tiny", messages=USER)
            stream = await client.chat.completions.create(model="tiny", messages=USER, stream=True)
            parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        return whole.choices[0].message.content, "".join(parts)

    assert asyncio.run(both()) == ("Hello world", "Hello world")


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (QueueFull("full", 1), openai.RateLimitError),
        (GenerationFailed(FailureKind.REFUSED, "no"), openai.BadRequestError),
        (GenerationFailed(FailureKind.FAULT, "broken"), openai.InternalServerError),
        (GenerationFailed(FailureKind.STOPPED, "gone"), openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_become_the_clients_own(
    client: OpenAI, engine: FakeEngineClient, failure: Exception, kind: type[openai.APIError], stream: bool
) -> None:
    engine.answer = lambda request: Answer((), error=failure)
    with pytest.raises(kind, match=str(failure)):
        client.chat.completions.create(model="tiny", messages=USER, stream=stream)


def test_an_error_within_a_stream_is_raised(client: OpenAI, engine: FakeEngineClient) -> None:
    failure = GenerationFailed(FailureKind.FAULT, "broken")
    engine.answer = lambda request: Answer((Piece("begun"),), error=failure)
    stream = client.chat.completions.create(model="tiny", messages=USER, stream=True)
    with pytest.raises(openai.APIError, match="broken"):
        list(stream)


def test_wrong_requests_are_explained(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="gpt-4"):
        client.chat.completions.create(model="gpt-4", messages=USER)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="tiny", messages=USER, temperature=-1)


def test_leaving_a_stream_aborts_its_request(client: OpenAI, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer((Piece("begun"),), never_ends=True)
    with client.chat.completions.create(model="tiny", messages=USER, stream=True) as stream:
        next(iter(stream))
    wait_for(lambda: engine.aborted == [engine.requests[0].request_id])
