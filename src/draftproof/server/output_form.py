"""What a body asks of the form of its answer, as a grammar."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from draftproof.errors import UsageError
from draftproof.server.context import ServerContext
from draftproof.server.errors import ApiError
from draftproof.server.schemas.fields import GenerationFields, ResponseFormat, StructuredOutputs
from draftproof.text.output_rules import Grammar, GrammarKind, OutputRules

_FORM_FIELDS = ("structured_outputs", "response_format")


def grammar_of(fields: GenerationFields) -> Grammar | None:
    """The grammar that `response_format` or `structured_outputs` names; None for free text.

    Raises:
        ApiError: 400, both are there, or one is not whole.
    """
    wanted = fields.response_format
    by_format = None if wanted is None else _of_response_format(wanted)
    by_outputs = (
        None if fields.structured_outputs is None else _of_structured_outputs(fields.structured_outputs)
    )
    if by_format is not None and by_outputs is not None:
        raise ApiError(
            400,
            "response_format and structured_outputs both name a form; send one of them",
            param="structured_outputs",
        )
    return by_format or by_outputs


def form_field(fields: GenerationFields) -> str | None:
    """The field that names a form; None when none does."""
    return next((name for name in _FORM_FIELDS if getattr(fields, name) is not None), None)


async def check_rules(context: ServerContext, rules: OutputRules, param: str) -> None:
    """Refuse rules that cannot be enforced, before the request runs.

    Args:
        context: of the server.
        rules: of the answer.
        param: the field that they come from.

    Raises:
        ApiError: 400 with what is wrong in the schema or grammar.
    """
    if context.rules_check is None:
        raise ApiError(400, "this server cannot enforce a form of the answer", code="unsupported_parameter")
    try:
        # Compiling a large schema takes seconds; other requests go on meanwhile.
        await asyncio.to_thread(context.rules_check.check, rules)
    except UsageError as error:
        raise ApiError(400, str(error), param=param, code="invalid_grammar") from error


def _of_response_format(wanted: ResponseFormat) -> Grammar | None:
    if wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return Grammar(GrammarKind.JSON_OBJECT)
    if wanted.json_schema is None or wanted.json_schema.schema_ is None:
        raise ApiError(
            400,
            "response_format of type json_schema needs json_schema.schema",
            param="response_format.json_schema",
        )
    return _schema(wanted.json_schema.schema_)


def _of_structured_outputs(wanted: StructuredOutputs) -> Grammar:
    further = sorted(name for name, value in wanted.further_fields.items() if value not in (None, False))
    if further:
        raise ApiError(
            400,
            f"structured_outputs.{further[0][:80]} is not supported by this server. Leave it out.",
            param="structured_outputs",
            code="unsupported_parameter",
        )
    grammars = []
    if wanted.json_ is not None:
        grammars.append(_schema(wanted.json_))
    if wanted.regex is not None:
        grammars.append(Grammar(GrammarKind.REGEX, wanted.regex))
    if wanted.choice is not None:
        grammars.append(Grammar(GrammarKind.CHOICE, orjson.dumps(wanted.choice).decode()))
    if wanted.grammar is not None:
        grammars.append(Grammar(GrammarKind.LARK, wanted.grammar))
    if wanted.json_object:
        grammars.append(Grammar(GrammarKind.JSON_OBJECT))
    if len(grammars) != 1:
        raise ApiError(
            400,
            f"structured_outputs names {len(grammars)} forms; send exactly one of json, regex, choice, "
            "grammar and json_object",
            param="structured_outputs",
        )
    return grammars[0]


def _schema(schema: dict[str, Any] | str) -> Grammar:
    return Grammar(
        GrammarKind.JSON_SCHEMA, schema if isinstance(schema, str) else orjson.dumps(schema).decode()
    )
