"""`/v1/chat/completions`: prompts, reasoning, calls of functions, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from draftproof.engine.request import TokenLogprob
from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.speculation.acceptance import FinishReason
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.grammar import GrammarCompiler
from draftproof.text.output_rules import GrammarKind, OutputRules, Thinking
from draftproof.text.tokenizer import SpecialTokens, Tokenizer
from tests.server.conftest import Post
from tests.support.events import events_of
from tests.support.fake_engine import Answer, FakeEngineClient, Piece

USER = {"role": "user", "content": "Hi"}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}
CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n"
    "</parameter>\n</function>\n</tool_call>"
)
DEEP = '{"a": ' + "[" * 1000 + "]" * 1000 + "}"

# Shows everything that the API hands to a template; the embedded checkpoint's own knows no tools.
SHOWING = (
    "{% for m in messages %}[{{ m.role }}|{{ m.content if m.content is string else m.content|tojson }}"
    "|{{ m.tool_calls|tojson if m.tool_calls else '' }}|{{ m.reasoning_content }}]{% endfor %}"
    "{% if tools %}{{ tools|tojson }}{% endif %}{{ effort|default('') }}{{ reasoning_effort|default('') }}"
    "{% if add_generation_prompt %}<answer>"
    "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}{% endif %}"
)


@pytest.fixture
def shown_chat(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings, rules_check: GrammarCompiler
) -> Post:
    """Posts a chat request to a server whose template shows what it is given."""
    template = ChatTemplate({"default": SHOWING}, SpecialTokens(()), "a test")
    http = TestClient(create_app(engine, tokenizer, template, settings, rules_check=rules_check))

    def post(**fields: Any) -> Any:
        return http.post("/v1/chat/completions", json={"messages": [USER], **fields})

    return post


def prompt_of(engine: FakeEngineClient, tokenizer: Tokenizer) -> str:
    """Text of the newest request's prompt."""
    return tokenizer.decode(engine.requests[-1].prompt_ids, skip_special_tokens=False)


def test_a_whole_answer_is_a_message(chat: Post) -> None:
    answer = chat().json()
    assert answer["object"] == "chat.completion"
    choice = answer["choices"][0]
    assert choice["message"] == {
        "role": "assistant",
        "content": "Hello world",
        "refusal": None,
        "reasoning": None,
        "reasoning_content": None,
    }
    assert choice["finish_reason"] == "stop"


def test_the_prompt_is_the_rendered_conversation(
    chat: Post, engine: FakeEngineClient, tokenizer: Tokenizer, template: ChatTemplate
) -> None:
    chat(messages=[USER, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Go on"}])
    rendered = template.render(
        [USER, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Go on"}]
    )
    assert engine.requests[0].prompt_ids == tuple(tokenizer.encode_rendered(rendered))


def test_a_stream_begins_with_the_role(chat: Post) -> None:
    events = events_of(chat(stream=True).text)
    assert events[0]["object"] == "chat.completion.chunk"
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "Hello"}, {"content": " world"}]
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_choices_stream_side_by_side(chat: Post) -> None:
    events = events_of(chat(stream=True, n=2).text)
    for index in (0, 1):
        mine = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        assert "".join(choice["delta"].get("content", "") for choice in mine) == "Hello world"
        assert mine[0]["delta"]["role"] == "assistant"
        assert mine[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ([{"type": "text", "text": "Hi"}], "[user|Hi||]"),
        (
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            '[user|[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]||]',
        ),
    ],
)
def test_content_may_come_in_parts(
    shown_chat: Post, engine: FakeEngineClient, tokenizer: Tokenizer, content: object, shown: str
) -> None:
    assert shown_chat(messages=[{"role": "user", "content": content}]).status_code == 200
    assert prompt_of(engine, tokenizer).startswith(shown)


def test_earlier_calls_reach_the_template_as_objects(
    shown_chat: Post, engine: FakeEngineClient, tokenizer: Tokenizer
) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
    }
    shown_chat(
        messages=[
            {"role": "developer", "content": "Be brief"},
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "Ask"},
            {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"},
        ]
    )
    prompt = prompt_of(engine, tokenizer)
    assert prompt.startswith("[system|Be brief||]")
    assert '"arguments": {"city": "Paris"}' in prompt
    assert "|Ask]" in prompt
    assert "[tool|Sunny||]" in prompt


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages[1].content"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "messages[1].content[0].type",
        ),
        (
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{"}}],
            },
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": DEEP}}],
            },
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"role": "nobody", "content": ""}, "messages[1].role"),
    ],
)
def test_a_message_that_cannot_be_read_is_named(shown_chat: Post, message: object, param: str) -> None:
    answer = shown_chat(messages=[USER, message])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_what_a_template_refuses_is_the_clients_mistake(chat: Post) -> None:
    answer = chat(tools=[WEATHER])
    assert answer.status_code == 400
    assert "not trained to call tools" in answer.json()["error"]["message"]


def test_reasoning_is_told_under_both_names(
    shown_chat: Post, engine: FakeEngineClient, tokenizer: Tokenizer
) -> None:
    ids = tuple(tokenizer.encode_rendered("I think\n</think>\n\nYes"))
    engine.answer = lambda request: Answer((Piece("I think\n</think>\n\nYes", ids),))
    whole = shown_chat(chat_template_kwargs={"enable_thinking": True}).json()
    message = whole["choices"][0]["message"]
    assert (message["content"], message["reasoning"], message["reasoning_content"]) == (
        "Yes",
        "I think",
        "I think",
    )
    reasoning = len(tokenizer.encode_rendered("I think\n"))
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == reasoning
    events = events_of(shown_chat(enable_thinking=True, stream=True).text)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "I think"
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "I think"
    assert "".join(delta.get("content", "") for delta in deltas) == "Yes"


def test_reasoning_can_be_left_out(shown_chat: Post, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer((Piece("Hm</think>Yes"),))
    fields = {"enable_thinking": True, "include_reasoning": False}
    message = shown_chat(**fields).json()["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("Yes", None)
    events = events_of(shown_chat(**fields, stream=True).text)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "Yes"}]


def test_a_thinking_budget_becomes_a_rule(shown_chat: Post, engine: FakeEngineClient) -> None:
    shown_chat(enable_thinking=True, thinking_budget=10)
    assert engine.requests[-1].rules == OutputRules(None, Thinking(begins_open=True, budget=10))
    shown_chat(enable_thinking=True)
    assert engine.requests[-1].rules is None


@pytest.mark.parametrize(("effort", "begins_open"), [("none", False), ("high", True)])
def test_reasoning_effort_switches_thinking(
    shown_chat: Post, engine: FakeEngineClient, tokenizer: Tokenizer, effort: str, begins_open: bool
) -> None:
    shown_chat(reasoning_effort=effort)
    prompt = prompt_of(engine, tokenizer)
    assert prompt.endswith("<think>\n") is begins_open
    assert effort in prompt


def test_calls_come_typed_by_their_schema(shown_chat: Post, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer((Piece("Let me look.\n" + CALL),))
    choice = shown_chat(tools=[WEATHER]).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    call = choice["message"]["tool_calls"][0]
    assert call["type"] == "function"
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris", "days": 3}
    assert choice["message"]["content"].strip() == "Let me look."


def test_streamed_calls_add_up_to_the_whole_ones(shown_chat: Post, engine: FakeEngineClient) -> None:
    text = "Two:\n" + CALL + "\n" + CALL
    for size in (1, 7, 1000):
        pieces = tuple(Piece(text[begin : begin + size]) for begin in range(0, len(text), size))
        engine.answer = lambda request, pieces=pieces: Answer(pieces)
        events = events_of(shown_chat(tools=[WEATHER], stream=True).text)
        arguments = {0: "", 1: ""}
        names: dict[int, str] = {}
        for event in events:
            for call in event["choices"][0]["delta"].get("tool_calls", []):
                arguments[call["index"]] += call["function"]["arguments"]
                if "id" in call:
                    names[call["index"]] = call["function"]["name"]
        assert names == {0: "get_weather", 1: "get_weather"}
        assert [json.loads(text) for text in arguments.values()] == [{"city": "Paris", "days": 3}] * 2
        assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_call_that_is_cut_off_ends_by_length(shown_chat: Post, engine: FakeEngineClient) -> None:
    engine.answer = lambda request: Answer((Piece(CALL[:40]),), FinishReason.LENGTH)
    assert shown_chat(tools=[WEATHER]).json()["choices"][0]["finish_reason"] == "length"


def test_without_permission_what_looks_like_a_call_is_content(
    shown_chat: Post, engine: FakeEngineClient
) -> None:
    engine.answer = lambda request: Answer((Piece(CALL),))
    choice = shown_chat(tools=[WEATHER], tool_choice="none").json()["choices"][0]
    assert choice["message"]["content"] == CALL
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_that_must_be_is_enforced(shown_chat: Post, engine: FakeEngineClient, choice: object) -> None:
    assert shown_chat(tools=[WEATHER], tool_choice=choice).status_code == 200
    rules = engine.requests[-1].rules
    assert rules is not None
    assert rules.grammar is not None
    assert rules.grammar.kind is GrammarKind.LARK


def test_an_answer_may_be_a_call_or_of_the_form_that_is_asked_for(
    shown_chat: Post, engine: FakeEngineClient
) -> None:
    fields = {"tools": [WEATHER], "response_format": {"type": "json_object"}}
    for text, finish_reason in ((CALL, "tool_calls"), ("{}", "stop")):
        engine.answer = lambda request, text=text: Answer((Piece(text),))
        assert shown_chat(**fields).json()["choices"][0]["finish_reason"] == finish_reason
        rules = engine.requests[-1].rules
        assert rules is not None
        assert rules.grammar is not None
        assert "get_weather" in rules.grammar.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "other"}}},
            "tool_choice",
        ),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        (
            {
                "tools": [WEATHER],
                "tool_choice": "auto",
                "response_format": {"type": "json_schema", "json_schema": {"name": "x"}},
            },
            "response_format.json_schema",
        ),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ],
)
def test_contradictions_are_refused_by_name(shown_chat: Post, fields: dict[str, object], param: str) -> None:
    answer = shown_chat(**fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_an_unfinished_answer_goes_on(chat: Post, engine: FakeEngineClient, tokenizer: Tokenizer) -> None:
    chat(messages=[USER, {"role": "assistant", "content": "The sky is"}], continue_final_message=True)
    assert prompt_of(engine, tokenizer).endswith("The sky is")


def test_log_probabilities_have_the_shape_of_a_chat(
    chat: Post, engine: FakeEngineClient, tokenizer: Tokenizer
) -> None:
    token_id = tokenizer.encode("Hello")[0]
    text = tokenizer.decode([token_id])
    engine.answer = lambda request: Answer(
        (Piece(text, (token_id,), (TokenLogprob(token_id, -0.25, ((token_id, -0.25),)),)),)
    )
    entry = {"token": text, "logprob": -0.25, "bytes": list(text.encode())}
    content = [entry | {"top_logprobs": [entry]}]
    assert chat(logprobs=True, top_logprobs=1).json()["choices"][0]["logprobs"]["content"] == content
    events = events_of(chat(logprobs=True, top_logprobs=1, stream=True).text)
    assert events[1]["choices"][0]["logprobs"]["content"] == content


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_length_work(chat: Post, engine: FakeEngineClient, name: str) -> None:
    chat(**{name: 9})
    assert engine.requests[-1].parameters.max_tokens == 9


def test_a_checkpoint_without_template_says_so(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    http = TestClient(create_app(engine, tokenizer, None, settings))
    answer = http.post("/v1/chat/completions", json={"messages": [USER]})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "no_chat_template"
