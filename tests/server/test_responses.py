"""`/v1/responses`: OpenAI's newer shape, read by OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import FunctionToolParam, ResponseInputParam

from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.serving.client import GenerationFailed, QueueFull
from draftproof.serving.messages import FailureKind
from draftproof.speculation.acceptance import FinishReason
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.grammar import GrammarCompiler
from draftproof.text.tokenizer import SpecialTokens, Tokenizer
from tests.support.fake_engine import Answer, FakeEngineClient, Piece
from tests.support.http_server import serving

ADD: FunctionToolParam = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "strict": False,
}
CALL = "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>"
SHOWING = (
    "{% for m in messages %}[{{ m.role }}|{{ m.content }}|{{ m.tool_calls|tojson if m.tool_calls else '' }}"
    "|{{ m.reasoning_content }}]{% endfor %}{{ '<think>\n' if enable_thinking }}"
)


@pytest.fixture
def client(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings, rules_check: GrammarCompiler
) -> Iterator[OpenAI]:
    """OpenAI's client of a server whose template shows what it is given."""
    template = ChatTemplate({"default": SHOWING}, SpecialTokens(()), "a test")
    app = create_app(engine, tokenizer, template, settings, rules_check=rules_check)
    with serving(app) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made:
        yield made


def prompt_of(engine: FakeEngineClient, tokenizer: Tokenizer) -> str:
    """Text of the newest request's prompt."""
    return tokenizer.decode(engine.requests[-1].prompt_ids, skip_special_tokens=False)


def test_a_text_gets_a_text(client: OpenAI, engine: FakeEngineClient, tokenizer: Tokenizer) -> None:
    answer = client.responses.create(
        model="tiny", input="Hi", instructions="Be brief", max_output_tokens=9, temperature=0.5
    )
    assert prompt_of(engine, tokenizer) == "[system|Be brief||][user|Hi||]"
    assert engine.requests[0].parameters.max_tokens == 9
    assert answer.status == "completed"
    assert answer.output_text == "Hello world"
    assert answer.temperature == 0.5
    assert answer.usage is not None
    assert answer.usage.output_tokens == 2
    assert answer.usage.total_tokens == answer.usage.input_tokens + 2


def test_the_items_of_a_turn_are_one_message(
    client: OpenAI, engine: FakeEngineClient, tokenizer: Tokenizer
) -> None:
    items: ResponseInputParam = [
        {"role": "user", "content": [{"type": "input_text", "text": "Add"}]},
        {
            "type": "reasoning",
            "id": "r",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm"}],
        },
        {"role": "assistant", "content": "So"},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 2}'},
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
    ]
    client.responses.create(model="tiny", input=items)
    call = '{"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}}'
    assert prompt_of(engine, tokenizer) == f"[user|Add||][assistant|So|[{call}]|Hm][tool|4||]"


def test_reasoning_text_and_calls_are_items_of_their_own(client: OpenAI, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer((Piece("Hm\n</think>\n\nSo:\n" + CALL),))
    answer = client.responses.create(
        model="tiny", input="Hi", tools=[ADD], extra_body={"enable_thinking": True}
    )
    reasoning, message, call = (item.to_dict() for item in answer.output)
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hm"}]
    assert message["type"] == "message"
    assert call["name"] == "add"
    assert json.loads(str(call["arguments"])) == {"a": 2}
    assert {item["status"] for item in (reasoning, message, call)} == {"completed"}
    assert answer.output_text.strip() == "So:"


@pytest.mark.parametrize("size", [1, 9, 1000])
def test_a_stream_ends_with_the_whole_response(client: OpenAI, engine: FakeEngineClient, size: int) -> None:
    text = "Hm\n</think>\n\nSo:\n" + CALL + "\n" + CALL
    pieces = tuple(Piece(text[begin : begin + size]) for begin in range(0, len(text), size))
    engine.answer = lambda request: Answer(pieces)
    further = {"enable_thinking": True}
    with client.responses.stream(model="tiny", input="Hi", tools=[ADD], extra_body=further) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    deltas: dict[str, str] = {}
    for event in events:
        if event.type.endswith(".delta"):
            found: Any = event
            deltas[found.item_id] = deltas.get(found.item_id, "") + found.delta
    whole = [item.to_dict() for item in final.output]
    for item in whole:
        content: Any = item.get("content")
        assert deltas[str(item["id"])] == (content[0]["text"] if content else item["arguments"])
    opened = [event.type for event in events].count("response.output_item.added")
    assert opened == [event.type for event in events].count("response.output_item.done") == len(whole)


def test_an_answer_that_is_cut_off_is_incomplete(client: OpenAI, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer(finish_reason=FinishReason.LENGTH)
    answer = client.responses.create(model="tiny", input="Hi")
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    events = list(client.responses.create(model="tiny", input="Hi", stream=True))
    assert events[-1].type == "response.incomplete"


def test_a_schema_reaches_the_engine(client: OpenAI, engine: FakeEngineClient) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    client.responses.create(
        model="tiny",
        input="Hi",
        text={"format": {"type": "json_schema", "name": "thing", "schema": schema}},
    )
    rules = engine.requests[0].rules
    assert rules is not None
    assert rules.grammar is not None
    assert json.loads(rules.grammar.text) == schema


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"previous_response_id": "resp_1"}, "Send the whole conversation"),
        ({"background": True}, "background is not supported"),
        ({"n": 2}, "one choice"),
        ({"input": [{"role": "user"}]}, "content is missing"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "arguments is missing"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(client: OpenAI, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        client.responses.create(model="tiny", input="Hi", extra_body=fields)


def test_failures_before_and_within_a_stream(client: OpenAI, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer((), error=QueueFull("full", 1))
    with pytest.raises(openai.RateLimitError, match="full"):
        client.responses.create(model="tiny", input="Hi", stream=True)
    failure = GenerationFailed(FailureKind.FAULT, "broken")
    engine.answer = lambda request: Answer((Piece("begun"),), error=failure)
    last = list(client.responses.create(model="tiny", input="Hi", stream=True))[-1]
    assert last.type == "error"
    assert last.message == "broken"
