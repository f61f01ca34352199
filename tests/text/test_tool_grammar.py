"""Grammars of calls: what they admit is what the response parser reads."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from draftproof.errors import UsageError
from draftproof.text.output_rules import Grammar, GrammarKind, OutputRules
from draftproof.text.response_parser import ParsedResponse, ResponseParser
from draftproof.text.tool_calls import ToolFunction
from draftproof.text.tool_grammar import ToolChoice, ToolChoiceMode, tool_call_grammar
from tests.support.output_rules import compiler
from tests.text.test_grammar import admits
from tests.text.test_response_parser import call

WEATHER = ToolFunction(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 5},
            "unit": {"anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}]},
            "near": {"type": "object", "properties": {"u": {"$ref": "#/$defs/Unit"}}},
        },
        "required": ["city"],
        "$defs": {"Unit": {"enum": ["C", "F"], "type": "string"}},
    },
)
STRICT = replace(WEATHER, strict=True)
NOW = ToolFunction("now", {"type": "object", "properties": {}})
SHELL = ToolFunction("shell")
REQUIRED = ToolChoice(ToolChoiceMode.REQUIRED)


def grammar(*functions: ToolFunction, choice: ToolChoice | None = None, parallel: bool = True) -> Grammar:
    found = tool_call_grammar(functions, choice, parallel)
    assert found is not None
    compiler().check(OutputRules(found))
    return found


def parsed(text: str, *functions: ToolFunction) -> ParsedResponse:
    parser = ResponseParser(functions)
    return ParsedResponse.of([*parser.push(text), *parser.finish()])


CALLS = [
    (call("get_weather", city="Zürich\n</parameter> <x>"), True, True),
    (call("get_weather", city="", days="3", unit="C", near="{}"), True, True),
    (call("get_weather", city="a", unit="null", near='{"u": "F"}'), True, True),
    (call("get_weather", city="a", days="9"), True, False),
    (call("get_weather", city="a", near='{"u": "K"}'), True, False),
    (call("get_weather", city="a", days="many"), False, False),
    (call("get_weather", city="a", unit="K"), False, False),
    (call("get_weather", days="3", city="a"), False, False),
    (call("get_weather", days="3"), False, False),
    (call("get_weather", city="a", other="b"), False, False),
    (call("get_news", city="a"), False, False),
    ("Sure!", False, False),
    ("", False, False),
]


@pytest.mark.parametrize(("text", "loosely", "strictly"), CALLS)
def test_a_required_call(text: str, loosely: bool, strictly: bool) -> None:
    assert admits(grammar(WEATHER, NOW, choice=REQUIRED), text) == loosely
    assert admits(grammar(STRICT, NOW, choice=REQUIRED), text) == strictly


def test_what_is_admitted_is_read_with_the_right_types() -> None:
    text = call("get_weather", city="7", days="3", unit="null", near='{"u": "F"}')
    assert admits(grammar(STRICT, choice=REQUIRED), text)
    (only,) = parsed(text, STRICT).calls
    assert json.loads(only.arguments) == {"city": "7", "days": 3, "unit": None, "near": {"u": "F"}}


def test_several_calls_only_where_they_may_be_parallel() -> None:
    two = f"{call('now')}\n{call('get_weather', city='x')}"
    assert admits(grammar(WEATHER, NOW, choice=REQUIRED), two)
    assert not admits(grammar(WEATHER, NOW, choice=REQUIRED, parallel=False), two)
    assert admits(grammar(WEATHER, NOW, choice=REQUIRED, parallel=False), call("now"))


def test_a_named_function_is_called_once() -> None:
    named = grammar(WEATHER, NOW, choice=ToolChoice(ToolChoiceMode.NAMED, "now"))
    assert admits(named, call("now"))
    assert not admits(named, call("get_weather", city="x"))
    assert not admits(named, f"{call('now')}\n{call('now')}")


def test_a_function_without_a_schema_takes_anything_and_one_with_an_empty_one_nothing() -> None:
    both = grammar(SHELL, NOW, choice=REQUIRED)
    assert admits(both, call("shell"))
    assert admits(both, call("shell", b="1", a="2"))
    assert admits(both, call("now"))
    assert not admits(both, call("now", a="1"))


@pytest.mark.parametrize("text", ["", "Hello <tool", "a </tool_call> b", "\n\n"])
def test_free_answers_stay_free_without_a_call(text: str) -> None:
    for parallel in (True, False):
        assert admits(grammar(STRICT, parallel=parallel), text)


def test_calls_in_a_free_answer_obey_and_are_counted() -> None:
    good, bad = call("get_weather", city="x", days="3"), call("get_weather", city="x", days="9")
    for parallel in (True, False):
        free = grammar(STRICT, NOW, parallel=parallel)
        assert admits(free, good)
        assert admits(free, f"I look.\n\n{good}")
        assert not admits(free, f"I look.\n\n{bad}")
        assert not admits(free, "a <tool_call> b")
        assert admits(free, f"{good}\n{call('now')}") == parallel
        assert admits(free, f"{good}\nDone.") == parallel


FORM = Grammar(
    GrammarKind.JSON_SCHEMA, json.dumps({"type": "object", "properties": {"sky": {"enum": ["blue"]}}})
)


@pytest.mark.parametrize("form", [FORM, Grammar(GrammarKind.JSON_OBJECT)])
def test_an_answer_of_a_form_or_calls(form: Grammar) -> None:
    for parallel in (True, False):
        either = tool_call_grammar([WEATHER, NOW], parallel=parallel, form=form)
        assert either is not None
        assert admits(either, '{"sky": "blue"}')
        assert admits(either, '{"sky": "grey"}') == (form is not FORM)
        assert admits(either, call("now"))
        assert admits(either, f"{call('now')}\n{call('now')}") == parallel
        assert not admits(either, f'{call("now")}\n{{"sky": "blue"}}')
        assert not admits(either, "Hello")
        assert not admits(either, '{"sky":         "blue"}')


def test_a_form_counts_only_where_there_need_be_no_call() -> None:
    assert tool_call_grammar([], form=FORM) is FORM
    assert tool_call_grammar([NOW], ToolChoice(ToolChoiceMode.NONE), form=FORM) is FORM
    required = tool_call_grammar([NOW], REQUIRED, form=FORM)
    assert required is not None
    assert not admits(required, '{"sky": "blue"}')
    assert admits(required, call("now"))


def test_when_there_is_nothing_to_enforce() -> None:
    assert tool_call_grammar([WEATHER, NOW]) is None
    assert tool_call_grammar([STRICT], ToolChoice(ToolChoiceMode.NONE), parallel=False) is None
    assert tool_call_grammar([], parallel=False) is None


@pytest.mark.parametrize(
    "value",
    [
        {"enum": ["a\nb", 1, None, {"k": [1]}]},
        {"const": "x"},
        {"type": ["integer", "null"]},
        {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}},
        {"type": "array", "items": {"$ref": "#/$defs/Loop"}},
        {"allOf": [{"$ref": "#/$defs/Loop"}]},
        {"$ref": "#/nowhere"},
        {"description": "anything"},
        {"type": "string", "enum": ["é"]},
        {"type": ["string", "integer"], "description": "", "title": "T", "default": None},
        {"oneOf": [{"type": "boolean"}, {"type": "number", "minimum": 0}]},
        True,
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_schemas_of_every_form_compile(value: object, strict: bool) -> None:
    loop = {"Loop": {"type": "array", "items": {"$ref": "#/$defs/Loop"}}}
    function = ToolFunction("f", {"properties": {'a"b': value}, "$defs": loop, "required": ['a"b']}, strict)
    grammar(function, choice=REQUIRED)
    written = {"enum": "a\nb", "const": "x"}
    if isinstance(value, dict) and "type" not in value:
        for keyword, text in written.items():
            if keyword in value:
                assert admits(grammar(function, choice=REQUIRED), call("f", **{'a"b': text}))


@pytest.mark.parametrize(
    ("functions", "choice", "message"),
    [
        (
            (WEATHER,),
            ToolChoice(ToolChoiceMode.NAMED, "now"),
            "names function 'now', which is not among",
        ),
        ((), REQUIRED, "tool_choice asks for a call, but there are no tools"),
        (
            (ToolFunction("f", {"properties": {"a": {"type": "string", "pattern": "x"}}}, True),),
            REQUIRED,
            "strict function f: 'pattern' of parameter 'a' cannot be enforced. Leave it out",
        ),
        (
            (ToolFunction("f", {"properties": {"a>": {}}}),),
            REQUIRED,
            "function f: parameter 'a>' cannot be written in a call",
        ),
    ],
)
def test_what_cannot_be_enforced_is_refused(
    functions: tuple[ToolFunction, ...], choice: ToolChoice, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        tool_call_grammar(functions, choice)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (Grammar(GrammarKind.REGEX, "a"), "a regex cannot be enforced beside tools. Ask for JSON"),
        (Grammar(GrammarKind.JSON_SCHEMA, "{"), "the json_schema cannot be used"),
        (Grammar(GrammarKind.JSON_SCHEMA, "[]"), "the json_schema cannot be used: it is no JSON object"),
    ],
)
def test_a_form_that_cannot_stand_beside_calls_is_refused(form: Grammar, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tool_call_grammar([NOW], form=form)
