"""Functions that a conversation offers, and how Qwen3.5 writes their calls.

A call is XML-like text, one parameter after another, each value on lines of its own::

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

Texts stand as they are, everything else as JSON; only the function's schema tells which it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from draftproof.errors import UsageError

Json = Mapping[str, Any]

CALL_BEGIN, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION_BEGIN, FUNCTION_END = "<function=", "</function>"
PARAMETER_BEGIN, PARAMETER_END = "<parameter=", "</parameter>"

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_MOST_NESTED_REFERENCES = 32


@dataclass(frozen=True)
class ToolFunction:
    """A function that may be called.

    Attributes:
        name: of the function.
        parameters: JSON schema of its arguments; empty for a function without any.
        strict: arguments must obey the schema, token by token.

    Raises:
        UsageError: the name could not be written in a call.
    """

    name: str
    parameters: Json = field(default_factory=dict)
    strict: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"function name {self.name[:200]!r} cannot be used; "
                "allowed: up to 128 letters, digits and _.:-"
            )

    @property
    def properties(self) -> Json:
        """Schemas of its parameters by name."""
        found = self.parameters.get("properties")
        return found if isinstance(found, Mapping) else {}

    def value_types(self, parameter: str) -> frozenset[str]:
        """JSON types that a parameter's value may have, as far as the schema says; empty when it does not."""
        return _types(self.properties.get(parameter), self.parameters, _MOST_NESTED_REFERENCES)


def resolved(schema: object, root: Json) -> object:
    """A schema, or what its ``$ref`` into the same document stands for; None for what cannot be found."""
    for _ in range(_MOST_NESTED_REFERENCES):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            return schema
        schema = _at_pointer(schema["$ref"], root)
    return None


def _at_pointer(reference: object, root: Json) -> object:
    """What a reference like ``#/$defs/City`` points to."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: object = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def _types(schema: object, root: Json, depth: int) -> frozenset[str]:
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth == 0:
        return frozenset()
    found: set[str] = set()
    declared = schema.get("type")
    if isinstance(declared, str):
        found.add(declared)
    elif isinstance(declared, list):
        found.update(name for name in declared if isinstance(name, str))
    elif isinstance(schema.get("enum"), list):
        found.update(json_type(value) for value in schema["enum"])
    elif "const" in schema:
        found.add(json_type(schema["const"]))
    else:
        for keyword in ("anyOf", "oneOf", "allOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list):
                found.update(*(_types(branch, root, depth - 1) for branch in branches))
    if found and schema.get("nullable") is True:
        found.add("null")
    return frozenset(found)


def json_type(value: object) -> str:
    """The JSON type of a parsed value; a whole number is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def is_text(types: frozenset[str]) -> bool:
    """Whether a value of these types can only be text."""
    return types <= {"string"}


def argument_json(text: str, types: frozenset[str]) -> str:
    """JSON of a parameter's value.

    What is JSON of one of the types stays as it is written, digit by digit; Python's spellings of true, false
    and null count too, because chat templates write them. Anything else is a text, whatever the schema says:
    nothing is repaired.

    Args:
        text: between the lines of the parameter's tags.
        types: see `ToolFunction.value_types`.
    """
    stripped = text.strip()
    if stripped.lower() in ("true", "false") and "boolean" in types:
        return stripped.lower()
    if stripped.lower() in ("null", "none") and "null" in types:
        return "null"
    try:
        found = json_type(json.loads(stripped, parse_constant=_refuse_constant))
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    is_number = found == "integer" and "number" in types
    if found != "string" and (found in types or is_number):
        return stripped
    return json.dumps(text, ensure_ascii=False)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
