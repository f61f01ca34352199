"""Requests made up from our own OpenAPI description, valid and not: the server stays up and its answers are
those that the description promises.

`benchmarks/clients/schemathesis.sh` sends many more to a running server.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.grammar import GrammarCompiler
from draftproof.text.tokenizer import SpecialTokens, Tokenizer
from tests.support.fake_engine import FakeEngineClient

EXAMPLES = 8
BODIES = ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"]
CASES = [
    *[("POST", path, mode) for path in BODIES for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)],
    ("GET", "/v1/models/{name}", GenerationMode.POSITIVE),
]

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
"""Not among them: that whatever fits the description is accepted. Which tokens there are, what fits the
context and what the template takes is not in it."""

WITHIN_REACH: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
"""What replaces made-up values that would end nearly every chat request at its first message."""


@pytest.fixture(scope="module")
def app(tokenizer: Tokenizer, rules_check: GrammarCompiler) -> FastAPI:
    """An application whose template takes everything."""
    template = ChatTemplate({"default": "{{ messages }}{{ tools }}"}, SpecialTokens(()), "a test")
    fuzzed = ServerSettings(model_names=("tiny",), model_root="tiny", created=1)
    return create_app(FakeEngineClient(), tokenizer, template, fuzzed, rules_check=rules_check)


@pytest.mark.parametrize(("method", "path", "mode"), CASES)
def test_answers_are_those_that_the_description_promises(
    app: FastAPI, method: str, path: str, mode: GenerationMode
) -> None:
    operation = schemathesis.openapi.from_asgi("/openapi.json", app)[path][method]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body.pop("model", None)
            if "messages" in case.body:
                case.body |= WITHIN_REACH
        case.validate_response(case.call(), checks=CHECKS)

    send()
