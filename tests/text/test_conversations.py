"""A whole conversation: rendered as transformers renders it, answered, parsed, and rendered again.

The template is ours, in the format of Qwen3.5's answers (`tests/data/templates`).
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import transformers

from draftproof.text.chat_template import ChatTemplate
from draftproof.text.output_rules import Thinking
from draftproof.text.reasoning import thinking_after
from draftproof.text.response_parser import ParsedResponse, ResponseParser
from draftproof.text.tool_calls import ToolFunction
from draftproof.text.tool_grammar import ToolChoice, ToolChoiceMode, tool_call_grammar
from tests.support.tiny_tokenizer import write_tokenizer
from tests.text.test_grammar import admits

TEMPLATE = Path(__file__).parents[1] / "data" / "templates" / "qwen3_5_style.jinja"
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "hourly": {"type": "boolean"},
        "places": {"type": "array", "items": {"type": "object"}},
        "before": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    },
}
WEATHER = ToolFunction("weather", SCHEMA)
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "<b>ü</b>", "parameters": SCHEMA}}
]
ARGUMENTS = {
    "city": 'São "Tomé"\n</parameter>\n',
    "days": 3,
    "hourly": True,
    "places": [{"name": "é\n", "at": [1.5, None]}],
    "before": None,
}
ANSWERS: list[dict[str, Any]] = [
    {"role": "assistant", "reasoning_content": "A greeting.\n\nSo:", "content": "Hello  there!\n- you"},
    {"role": "assistant", "reasoning_content": "", "content": "Plain."},
    {
        "role": "assistant",
        "reasoning_content": "Look it up.",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}],
    },
    {
        "role": "assistant",
        "reasoning_content": "Twice <tool_call>.",
        "content": "I look at both:",
        "tool_calls": [
            {"type": "function", "function": {"name": "weather", "arguments": {"city": "a"}}},
            {"type": "function", "function": {"name": "weather", "arguments": {"city": "", "days": -1}}},
        ],
    },
]
CONVERSATIONS = [
    [{"role": "user", "content": "Hi"}],
    [
        {"role": "system", "content": " Be brief. "},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ],
    *([{"role": "user", "content": "1"}, answer, {"role": "user", "content": "2"}] for answer in ANSWERS),
    *(
        [
            {"role": "user", "content": "Weather?"},
            answer,
            {"role": "tool", "content": '{"rain": true}'},
            {"role": "tool", "content": "sun"},
        ]
        for answer in ANSWERS[2:]
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("conversation")
    write_tokenizer(path)
    (path / "chat_template.jinja").write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def template(folder: Path) -> ChatTemplate:
    return ChatTemplate.load(folder)


@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("variables", [{}, {"enable_thinking": False}, {"enable_thinking": True}])
def test_prompts_are_those_of_transformers(
    folder: Path,
    template: ChatTemplate,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    variables: dict[str, Any],
) -> None:
    reference = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    for begins_answer in (True, False):
        expected = reference.apply_chat_template(
            messages, tools=tools, add_generation_prompt=begins_answer, tokenize=False, **variables
        )
        assert template.render(messages, tools, begins_answer, variables) == expected


def test_what_the_prompt_leaves_to_the_output(template: ChatTemplate) -> None:
    messages = CONVERSATIONS[0]
    assert thinking_after(template.render(messages), 3) == Thinking(begins_open=True, budget=3)
    assert thinking_after(template.render(messages, variables={"enable_thinking": False})) is None


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_rendered_is_parsed_to_the_same(
    template: ChatTemplate, answer: dict[str, Any]
) -> None:
    """What a model that answers exactly like the template would say, in pieces of any size."""
    question = [{"role": "user", "content": "?"}]
    prompt = template.render(question, TOOLS)
    whole = template.render([*question, answer], TOOLS, add_generation_prompt=False)
    assert whole.startswith(prompt)
    output = whole[len(prompt) :].removesuffix("<|im_end|>\n")
    generator = random.Random(7)
    for _ in range(30):
        parser = ResponseParser([WEATHER], thinking_after(prompt))
        parts, begin = [], 0
        while begin < len(output):
            size = generator.choice((1, 2, 3, 7, 20, 200))
            parts.extend(parser.push(output[begin : begin + size]))
            begin += size
        parsed = ParsedResponse.of([*parts, *parser.finish()])
        assert parsed.reasoning == answer["reasoning_content"]
        assert parsed.content == answer["content"]
        calls = [call["function"] for call in answer.get("tool_calls", [])]
        assert [(call.name, json.loads(call.arguments)) for call in parsed.calls] == [
            (call["name"], call["arguments"]) for call in calls
        ]


@pytest.mark.parametrize("answer", ANSWERS[2:])
def test_calls_that_are_rendered_obey_the_grammar(template: ChatTemplate, answer: dict[str, Any]) -> None:
    rendered = template.render([{"role": "user", "content": "?"}, answer], TOOLS, add_generation_prompt=False)
    output = rendered.partition("</think>\n\n")[2].removesuffix("<|im_end|>\n")
    required = tool_call_grammar([WEATHER], ToolChoice(ToolChoiceMode.REQUIRED))
    strict = tool_call_grammar([ToolFunction("weather", SCHEMA, strict=True)])
    assert required is not None
    assert strict is not None
    assert admits(required, output[output.index("<tool_call>") :])
    assert admits(strict, output)
