"""Prompts from conversations, equal to those of transformers."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import transformers

from draftproof.errors import CheckpointError, UsageError
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.tokenizer import SpecialTokens
from tests.support.tiny_tokenizer import write_tokenizer

# Written for these tests in the manner of Qwen3.5: system message first, tools as JSON lines, reasoning, tool
# calls, tool results in a user turn, and a beginning of the answer that depends on `enable_thinking`.
QWEN_STYLE = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages and messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{% endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}{{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages and messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set state = namespace(results=0) %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}{{ raise_exception('the system message must be first') }}{% endif %}
        {%- continue %}
    {%- endif %}
    {%- if message.role == 'tool' %}
        {%- if state.results == 0 %}{{- '<|im_start|>user' }}{% endif %}
        {%- set state.results = state.results + 1 %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}
            {{- '<|im_end|>\\n' }}
            {%- set state.results = 0 %}
        {%- endif %}
        {%- continue %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
        {%- if message.reasoning_content is defined %}
            {{- '<think>\\n' + message.reasoning_content | trim + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- message.content if message.content is defined else '' }}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
            {%- for name, value in call.function.arguments | items %}
                {{- '<parameter=' + name + '>\\n' }}
                {{- value if value is string else value | tojson }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {%- endgeneration %}
    {%- else %}
        {{- message.content }}
    {%- endif %}
    {{- eos_token + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- set quick = enable_thinking is defined and not enable_thinking %}
    {{- '<think>\\n\\n</think>\\n\\n' if quick else '<think>\\n' }}
{%- endif %}
"""
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'Says <b>"what"</b> it is like — überall & anywhere',
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {
    "function": {"name": "weather", "arguments": {"city": "Zürich <1>", "days": 3, "units": ["°C", None]}}
}
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Hi <&>\n"}],
    [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "\nlook it up\n",
            "tool_calls": [CALL, CALL],
        },
        {"role": "tool", "content": "rain"},
        {"role": "tool", "content": "sun"},
        {"role": "user", "content": "So?"},
    ],
    [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "one", "reasoning": "counted", "tool_calls": None},
        {"role": "user", "content": "2"},
    ],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template")
    write_tokenizer(path)
    (path / "chat_template.jinja").write_text(QWEN_STYLE, encoding="utf-8")
    return path


def template(source: str) -> ChatTemplate:
    return ChatTemplate({"default": source}, SpecialTokens((("eos_token", "</s>"),)), "a template")


@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("tools", [None, [TOOL, TOOL]])
@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("variables", [{}, {"enable_thinking": False}])
def test_prompts_are_those_of_transformers(
    folder: Path,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    add_generation_prompt: bool,
    variables: dict[str, Any],
) -> None:
    reference = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    expected = reference.apply_chat_template(
        messages, tools=tools, add_generation_prompt=add_generation_prompt, tokenize=False, **variables
    )
    rendered = ChatTemplate.load(folder).render(messages, tools, add_generation_prompt, variables)
    assert rendered == expected
    assert "<|im_start|>" in rendered


def test_the_environment_has_what_templates_expect() -> None:
    source = "{% for n in [1, 2, 3] %}\n  {% if n == 3 %}{% break %}{% endif %}\n{{ n }}\n{% endfor %}"
    assert template(source).render([]) == "1\n2\n"
    assert template("{{ {'b': '<é>', 'a': 1} | tojson }}").render([]) == '{"b": "<é>", "a": 1}'
    assert template("{{ [1] | tojson(indent=2) }}").render([]) == "[\n  1\n]"
    assert (
        template("{{ {'é': 1} | tojson(ensure_ascii=True, separators=(',', ':')) }}").render([])
        == '{"\\u00e9":1}'
    )
    assert template("{{ strftime_now('%Y') }}").render([]) == str(datetime.now().year)
    assert template("{{ eos_token }}{{ bos_token }}").render([]) == "</s>"


def test_the_refusal_of_a_template_is_the_users_to_read() -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "system", "content": "late"}]
    with pytest.raises(UsageError, match="refuses these messages: the system message must be first"):
        template(QWEN_STYLE).render(messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[5].content.text }}",
        "{{ 1 // 0 }}",
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% set _ = messages.append(1) %}",
        "{% for n in range(10 ** 9) %}{% endfor %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    ],
)
def test_a_template_that_fails_or_breaks_out_is_an_error_of_one_line(source: str) -> None:
    with pytest.raises(UsageError, match="the chat template refuses these messages"):
        template(source).render([{"role": "user", "content": "text"}])


def test_messages_are_not_changed_by_rendering(folder: Path) -> None:
    before = json.dumps(CONVERSATIONS)
    for messages in CONVERSATIONS:
        ChatTemplate.load(folder).render(messages)
    assert json.dumps(CONVERSATIONS) == before


def test_a_template_that_is_no_jinja_is_named_with_its_line(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("fine\n{% if %}")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja is no chat template: line 2"):
        ChatTemplate.load(tmp_path)


def in_config(folder: Path, value: object) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": value, "eos_token": "E"}))
    return folder


def test_the_template_may_stand_in_the_tokenizer_config(tmp_path: Path) -> None:
    assert ChatTemplate.load(in_config(tmp_path, "{{ eos_token }}")).render([]) == "E"


def test_a_file_of_its_own_comes_before_the_tokenizer_config(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("file")
    assert ChatTemplate.load(in_config(tmp_path, "config")).render([]) == "file"


def test_there_may_be_a_template_of_its_own_for_tools(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    loaded = ChatTemplate.load(in_config(tmp_path, named))
    assert loaded.render([]) == "plain"
    assert loaded.render([], tools=[TOOL]) == "tools"
    only_tools = ChatTemplate.load(in_config(tmp_path, named[1:]))
    with pytest.raises(UsageError, match="and none for this request"):
        only_tools.render([])


@pytest.mark.parametrize("value", [3, {"default": "x"}, [{"name": "default"}], ["x"]])
def test_a_chat_template_of_another_kind_is_named(tmp_path: Path, value: object) -> None:
    with pytest.raises(CheckpointError, match="neither a text nor a list of named templates"):
        ChatTemplate.load(in_config(tmp_path, value))


def test_a_checkpoint_without_a_template_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no chat template .* Send a plain prompt"):
        ChatTemplate.load(tmp_path)
