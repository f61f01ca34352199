"""JSON schemas as llguidance takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from draftproof.errors import UsageError
from draftproof.text.output_rules import Grammar, GrammarKind

JSON_WHITESPACE = r"[ ]?|\n[ ]{0,32}"
"""Between the parts of a JSON text: what printers write. Without a bound a model can go on with blanks until
its length limit."""


def embedded_json(grammar: Grammar) -> str:
    """A grammar of kind JSON_OBJECT or JSON_SCHEMA as the operand of ``%json``.

    Raises:
        UsageError: the schema is no JSON object.
    """
    if grammar.kind is GrammarKind.JSON_OBJECT:
        return with_whitespace({"type": "object"})
    try:
        schema = json.loads(grammar.text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the {grammar.kind.value} cannot be used: {error}") from error
    if not isinstance(schema, dict):
        raise UsageError(f"the {grammar.kind.value} cannot be used: it is no JSON object")
    return with_whitespace(schema)


def with_whitespace(schema: Mapping[str, Any]) -> str:
    """A schema's JSON, with bounded whitespace unless it says how much there may be."""
    options = {"whitespace_pattern": JSON_WHITESPACE}
    given = schema.get("x-guidance")
    return json.dumps({**schema, "x-guidance": {**options, **given} if isinstance(given, dict) else options})
