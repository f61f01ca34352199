"""Forms of answers: what reaches the engine, and what is refused before it does."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.text.output_rules import Grammar, GrammarKind
from draftproof.text.tokenizer import Tokenizer
from tests.server.conftest import Post
from tests.support.fake_engine import FakeEngineClient

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def json_schema(schema: object) -> dict[str, object]:
    """OpenAI's `response_format` for a schema."""
    return {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": True}}


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({"response_format": {"type": "json_object"}}, Grammar(GrammarKind.JSON_OBJECT)),
        ({"structured_outputs": {"json_object": True}}, Grammar(GrammarKind.JSON_OBJECT)),
        ({"structured_outputs": {"regex": "[ab]+"}}, Grammar(GrammarKind.REGEX, "[ab]+")),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, Grammar(GrammarKind.CHOICE, '["yes","no"]')),
        (
            {"structured_outputs": {"grammar": 'start: "a"'}},
            Grammar(GrammarKind.LARK, 'start: "a"'),
        ),
    ],
)
def test_a_form_reaches_the_engine(
    complete: Post, chat: Post, engine: FakeEngineClient, fields: dict[str, object], grammar: Grammar
) -> None:
    for post in (complete, chat):
        assert post(**fields).status_code == 200
        rules = engine.requests[-1].rules
        assert rules is not None
        assert rules.grammar == grammar


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": json_schema(SCHEMA)},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
    ],
)
def test_a_schema_reaches_the_engine_in_its_order(
    complete: Post, engine: FakeEngineClient, fields: dict[str, object]
) -> None:
    assert complete(**fields).status_code == 200
    rules = engine.requests[-1].rules
    assert rules is not None
    assert rules.grammar is not None
    assert rules.grammar.kind is GrammarKind.JSON_SCHEMA
    assert list(json.loads(rules.grammar.text).items()) == list(SCHEMA.items())


def test_free_text_has_no_rules(complete: Post, engine: FakeEngineClient) -> None:
    complete(response_format={"type": "text"})
    assert engine.requests[0].rules is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"response_format": json_schema({"type": "nonsense"})}, "nonsense"),
        ({"response_format": {"type": "json_schema"}}, "needs json_schema.schema"),
        ({"response_format": {"type": "xml"}}, "'text', 'json_object' or 'json_schema'"),
        ({"structured_outputs": {"regex": "("}}, "regex"),
        ({"structured_outputs": {}}, "names 0 forms"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "names 2 forms"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structural_tag is not supported"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "send one of them",
        ),
    ],
)
def test_a_form_that_cannot_be_is_refused_before_the_engine_hears_of_it(
    complete: Post, engine: FakeEngineClient, fields: dict[str, object], words: str
) -> None:
    answer = complete(**fields)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert not engine.requests


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"response_format": json_schema({"type": "nonsense"})}, "response_format"),
    ],
)
def test_the_field_that_a_broken_grammar_came_in_is_named(
    complete: Post, chat: Post, fields: dict[str, object], param: str
) -> None:
    assert [post(**fields).json()["error"]["param"] for post in (complete, chat)] == [param, param]


def test_a_server_without_grammars_says_so(
    engine: FakeEngineClient, tokenizer: Tokenizer, settings: ServerSettings
) -> None:
    http = TestClient(create_app(engine, tokenizer, None, settings))
    answer = http.post("/v1/completions", json={"prompt": "x", "response_format": {"type": "json_object"}})
    assert answer.status_code == 400
    assert "cannot enforce" in answer.json()["error"]["message"]
