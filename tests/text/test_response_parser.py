"""Answers as reasoning, content and calls: the same however the text is cut."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.errors import UsageError
from draftproof.text.output_rules import Thinking
from draftproof.text.response_parser import (
    ContentDelta,
    ParsedResponse,
    ReasoningDelta,
    ResponseParser,
    ToolCall,
    ToolCallArguments,
    ToolCallBegin,
    fresh_call_id,
)
from draftproof.text.tool_calls import ToolFunction

OPEN = Thinking(begins_open=True)
CLOSED = Thinking(begins_open=False)
WEATHER = ToolFunction(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "detail": {"type": "boolean"},
            "near": {"$ref": "#/$defs/Near"},
            "unit": {"enum": ["C", "F"]},
            "limit": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "note": {"type": ["string", "null"]},
        },
        "$defs": {"Near": {"type": "object", "properties": {"km": {"type": "number"}}}},
    },
)
RUN = ToolFunction("run", {"type": "object", "properties": {"code": {"type": "string"}}})
FUNCTIONS = (WEATHER, RUN)


def call(name: str, **values: str) -> str:
    """A call as chat templates write it."""
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def numbered() -> Iterator[str]:
    yield from (f"call_{number}" for number in range(100))


def parse(
    pieces: Sequence[str],
    thinking: Thinking | None = None,
    functions: Sequence[ToolFunction] = FUNCTIONS,
) -> ParsedResponse:
    parser = ResponseParser(functions, thinking, numbered().__next__)
    parts = [part for piece in pieces for part in parser.push(piece)]
    parts.extend(parser.finish())
    assert all(part.name if isinstance(part, ToolCallBegin) else part.text for part in parts)
    return ParsedResponse.of(parts)


def arguments(text: str) -> object:
    (only,) = parse([text]).calls
    return json.loads(only.arguments)


TRANSCRIPT = (
    "\nThe user wants </thin> weather, maybe <tool_call>?\n\n</think>\n\nI look it up:\n\n"
    + call("get_weather", city='Zürich "<b>" \\ 😀', days="3", near='{"km": 1.50}', limit="null")
    + "\n"
    + call("run", code="\n  x = '<parameter=y>'\n  print('</parameter>')\n\n</parameter >\n")
)
PARSED = ParsedResponse(
    "The user wants </thin> weather, maybe <tool_call>?",
    "I look it up:",
    (
        ToolCall(
            "call_0",
            "get_weather",
            '{"city": "Zürich \\"<b>\\" \\\\ 😀", "days": 3, "near": {"km": 1.50}, "limit": null}',
        ),
        ToolCall(
            "call_1",
            "run",
            json.dumps({"code": "\n  x = '<parameter=y>'\n  print('</parameter>')\n\n</parameter >\n"}),
        ),
    ),
)


def test_a_whole_answer() -> None:
    assert parse([TRANSCRIPT], OPEN) == PARSED


@pytest.mark.parametrize("size", range(1, 10))
def test_pieces_of_one_size(size: int) -> None:
    pieces = [TRANSCRIPT[begin : begin + size] for begin in range(0, len(TRANSCRIPT), size)]
    assert parse(pieces, OPEN) == PARSED


def cut(text: str, generator: random.Random) -> list[str]:
    borders = sorted(generator.randrange(len(text) + 1) for _ in range(generator.randrange(12)))
    return [text[low:high] for low, high in zip([0, *borders], [*borders, len(text)], strict=True)]


def test_random_pieces() -> None:
    generator = random.Random(1)
    for _ in range(200):
        assert parse(cut(TRANSCRIPT, generator), OPEN) == PARSED


WORDS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=run>", "<function=get_weather>"),
    *("</function>", "<parameter=code>", "<parameter=days>", "</parameter>", "\n", " ", "<", "</", ">", "7"),
    *(
        "<tool_call>\n<function=",
        "<tool_call>\n<function=run>\n<parameter=code>\n",
        "text",
        "<parameter=note>",
        "null",
        '"',
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    words=st.lists(st.sampled_from(WORDS), max_size=25),
    thinking=st.sampled_from([None, OPEN, CLOSED]),
    functions=st.sampled_from([(), FUNCTIONS]),
)
def test_any_text_means_the_same_character_by_character(
    words: list[str], thinking: Thinking | None, functions: Sequence[ToolFunction]
) -> None:
    """Whole calls, torn ones, markers where none belong."""
    text = "".join(words)
    whole = parse([text], thinking, functions)
    assert parse(list(text), thinking, functions) == whole
    assert parse(words, thinking, functions) == whole


# Reasoning


def test_an_answer_that_begins_with_reasoning() -> None:
    assert parse(["  <think>\nhm\n</think>\n\nYes"], CLOSED) == ParsedResponse("hm", "Yes", ())
    assert parse(["<thinking> is fun"], CLOSED) == ParsedResponse("", "<thinking> is fun", ())
    assert parse([" \n<thin"], CLOSED) == ParsedResponse("", " \n<thin", ())


def test_without_thinking_every_text_is_content() -> None:
    text = "\n <think>a</think> b\n"
    assert parse([text]) == ParsedResponse("", text, ())


def test_reasoning_that_never_ends_is_reasoning() -> None:
    assert parse(["\n\na\nb </thi"], OPEN) == ParsedResponse("a\nb </thi", "", ())
    assert parse(["a\n\n"], OPEN) == ParsedResponse("a", "", ())


def test_only_the_first_end_of_reasoning_counts() -> None:
    assert parse(["a</think>b</think>"], OPEN) == ParsedResponse("a", "b</think>", ())


def test_text_is_given_as_soon_as_it_is_sure() -> None:
    parser = ResponseParser(FUNCTIONS, OPEN, numbered().__next__)
    assert parser.push("Let me\n") == (ReasoningDelta("Let me"),)
    assert parser.push("see</") == (ReasoningDelta("\nsee"),)
    assert parser.push("think>\n\nSure") == (ContentDelta("Sure"),)
    assert parser.push(" <tool_call>\n<function=run") == ()
    assert parser.push(">") == (ToolCallBegin(0, "call_0", "run"), ToolCallArguments(0, "{"))
    assert parser.push("\n<parameter=code>\nprint(") == (ToolCallArguments(0, '"code": "print('),)
    assert parser.push('"\n') == (ToolCallArguments(0, '\\"'),)
    assert parser.push("\n</parameter>\n</function>") == (ToolCallArguments(0, '\\n"}'),)
    assert parser.finish() == ()


# Calls


def test_content_around_calls_keeps_its_inside_and_loses_the_edges() -> None:
    text = f"a  b\n\n{call('run', code='1')}\n\n{call('run', code='2')}\n after \n"
    parsed = parse([text])
    assert parsed.content == "a  bafter \n"
    assert [each.arguments for each in parsed.calls] == ['{"code": "1"}', '{"code": "2"}']


def test_content_that_ends_with_whitespace_keeps_it_when_no_call_follows() -> None:
    assert parse(["done\n\n"]).content == "done\n\n"
    assert parse([call("run", code="1") + "\n"]).content == ""


def test_a_function_without_parameters() -> None:
    assert arguments(call("run")) == {}
    assert arguments("<tool_call><function=run></function></tool_call>") == {}


def test_without_functions_a_call_is_content() -> None:
    text = "\n" + call("run", code="1") + "\n"
    assert parse([text], functions=()) == ParsedResponse("", text, ())


def test_a_function_that_nobody_offered_is_called_by_its_name_with_texts() -> None:
    (only,) = parse([call("rm", path="/", force="true", depth="3")]).calls
    assert only.name == "rm"
    assert json.loads(only.arguments) == {"path": "/", "force": "true", "depth": "3"}


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        ("city", "7", "7"),
        ("city", "", ""),
        ("city", "null", "null"),
        ("city", " a \n", " a \n"),
        ("days", "7", 7),
        ("days", " 7 ", 7),
        ("days", "7.0", 7.0),
        ("days", "7.5", "7.5"),
        ("days", "seven", "seven"),
        ("days", "null", "null"),
        ("days", "123456789012345678901234567890", 123456789012345678901234567890),
        ("detail", "true", True),
        ("detail", "False", False),
        ("detail", "1", "1"),
        ("near", '{"km": [1, {"a": "\\n"}]}', {"km": [1, {"a": "\n"}]}),
        ("near", "{'km': 1}", "{'km': 1}"),
        ("near", '{\n  "km": 1\n}', {"km": 1}),
        ("unit", "C", "C"),
        ("limit", "None", None),
        ("limit", "3", 3),
        ("limit", "1e3", 1e3),
        ("limit", "NaN", "NaN"),
        ("note", "null", None),
        ("note", '"quoted"', '"quoted"'),
        ("note", "12", "12"),
        ("undeclared", "12", "12"),
    ],
)
def test_values_have_the_types_of_the_schema(parameter: str, text: str, value: object) -> None:
    got = arguments(call("get_weather", **{parameter: text}))
    assert got == {parameter: value}
    assert type(got[parameter]) is type(value)


def test_numbers_keep_their_digits() -> None:
    (only,) = parse([call("get_weather", limit="1.10", near='{"km":1e400}')]).calls
    assert only.arguments == '{"limit": 1.10, "near": {"km":1e400}}'


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/Loop"},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema"},
        {"$ref": 3},
        {"type": 7},
        {"anyOf": "x"},
        {},
        [],
        True,
    ],
)
def test_a_parameter_whose_type_cannot_be_told_is_a_text(schema: object) -> None:
    loop = {"Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}]}}
    function = ToolFunction("f", {"properties": {"a": schema}, "$defs": loop})
    (only,) = parse([call("f", a="1")], functions=[function]).calls
    assert json.loads(only.arguments) == {"a": "1"}


@pytest.mark.parametrize("properties", [None, [], {"a": None}])
def test_schemas_may_be_anything(properties: object) -> None:
    function = ToolFunction("f", {"properties": properties})
    assert function.value_types("a") == frozenset()


def test_a_missing_end_of_the_function_or_of_the_call_is_made_up_for() -> None:
    body = "<tool_call>\n<function=run>\n<parameter=code>\n1\n</parameter>\n"
    for end in ("</function>", "</tool_call>", "</function>\n</tool_call>", "</function>\n</tool"):
        parsed = parse([body + end])
        assert parsed.calls == (ToolCall("call_0", "run", '{"code": "1"}'),)
    assert parse([body + "</function>\nmore"]).content == "more"


@pytest.mark.parametrize("kept", range(20, len(call("run", code="ab")) - len("</function>\n</tool_call>")))
def test_a_call_that_is_cut_off_is_never_a_whole_one(kept: int) -> None:
    """A length limit must not turn `rm -r /home/me/old` into `rm -r /home`."""
    parsed = parse([call("run", code="ab")[:kept]])
    for each in parsed.calls:
        with pytest.raises(json.JSONDecodeError):
            json.loads(each.arguments)
    assert len(parsed.calls) + bool(parsed.content) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "a <tool_call>\n<func",
        "<tool_call>\n<function=ru",
        '<tool_call>\n{"name": "run"}\n</tool_call>',
        "<tool_call>\n<function=a\nb>",
        "<tool_call>\n<function=>",
        f"<tool_call><function={'a' * 300}>",
        "<tool_call> <tool_call> x",
    ],
)
def test_what_is_no_call_is_content_to_the_letter(text: str) -> None:
    assert parse([text]) == ParsedResponse("", text, ())
    assert parse(list(text)) == ParsedResponse("", text, ())


def test_a_call_after_a_tag_that_was_none() -> None:
    parsed = parse(["<tool_call> oops " + call("run", code="1")])
    assert parsed.content == "<tool_call> oops"
    assert len(parsed.calls) == 1


def test_call_identifiers_are_unique() -> None:
    assert len({fresh_call_id() for _ in range(100)}) == 100
    assert fresh_call_id().startswith("call_")


@pytest.mark.parametrize("name", ["", "a>b", "a\nb", "a b", "é", "x" * 129])
def test_names_that_could_not_be_written_in_a_call_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"function name .* cannot be used; allowed: up to 128 letters"):
        ToolFunction(name)
