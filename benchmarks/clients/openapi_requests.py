"""Requests made up from our own OpenAPI description, and what their answers have to obey."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize")
VALID, INVALID = GenerationMode.POSITIVE, GenerationMode.NEGATIVE

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
)
"""Not among them: that whatever fits the description is accepted. Which tokens there are, what fits the
context and what the template takes is not in it."""

TOKENS_IN_REACH, LENGTH_IN_REACH, CHOICES_IN_REACH = 256, 24, 3


def send_all(
    operation: Any, mode: GenerationMode, count: int, take: Callable[[schemathesis.Case], None]
) -> None:
    """Give so many requests of an operation to `take`; the same ones each time.

    Args:
        operation: of a loaded description.
        mode: requests that fit it, or that do not.
        count: of requests.
        take: sends one; it may raise.
    """

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        if mode is VALID and isinstance(case.body, dict):
            bring_within_reach(case.body)
        take(case)

    send()


def bring_within_reach(body: dict[str, Any]) -> None:
    """Change what would end nearly every made-up request before it does anything: unknown models and tokens,
    messages in no order, outputs without end."""
    body.pop("model", None)
    if "messages" in body:
        body["messages"] = [{"role": "user", "content": "Hi"}]
        if "prompt" in body:
            del body["messages"]
    for name in ("prompt", "tokens", "stop_token_ids"):
        if name in body:
            body[name] = _known_tokens(body[name])
    for name, most in (
        ("max_tokens", LENGTH_IN_REACH),
        ("max_completion_tokens", LENGTH_IN_REACH),
        ("max_output_tokens", LENGTH_IN_REACH),
        ("min_tokens", 0),
        ("n", CHOICES_IN_REACH),
    ):
        if isinstance(body.get(name), (int, float)):
            body[name] = min(int(body[name]), most)
    if "input" in body:
        body |= {"input": "Hi", "n": 1, "max_output_tokens": LENGTH_IN_REACH}
    body.pop("logit_bias", None)
    body.setdefault("max_tokens", LENGTH_IN_REACH)


def _known_tokens(value: Any) -> Any:
    if isinstance(value, list):
        return [_known_tokens(item) for item in value]
    return int(value) % TOKENS_IN_REACH if isinstance(value, (int, float)) else value
