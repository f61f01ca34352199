"""Requests made up from our own OpenAPI description, valid and not: the server stays up and its answers are
those that the description promises.

`benchmarks/clients/openapi_fuzz.py` sends many more to a running server.
"""

from __future__ import annotations

import pytest
import schemathesis
from fastapi import FastAPI
from schemathesis.generation import GenerationMode

from benchmarks.clients.openapi_requests import CHECKS, INVALID, PATHS, VALID, send_all
from draftproof.server.app import create_app
from draftproof.server.settings import ServerSettings
from draftproof.text.chat_template import ChatTemplate
from draftproof.text.grammar import GrammarCompiler
from draftproof.text.tokenizer import SpecialTokens, Tokenizer
from tests.support.fake_engine import FakeEngineClient

REQUESTS = 8
CASES = [
    *[("POST", path, mode) for path in PATHS for mode in (VALID, INVALID)],
    ("GET", "/v1/models/{name}", VALID),
]


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

    def check(case: schemathesis.Case) -> None:
        case.validate_response(case.call(), checks=list(CHECKS))

    send_all(operation, mode, REQUESTS, check)
