"""Functions that a conversation offers, and how Qwen3.5 writes their calls.

A call is XML-like text, one parameter after another, each value on lines of its own::

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]

CALL_BEGIN, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION_BEGIN, FUNCTION_END = "<function=", "</function>"
PARAMETER_BEGIN, PARAMETER_END = "<parameter=", "</parameter>"


@dataclass(frozen=True)
class ToolFunction:
    """A function that may be called.

    Attributes:
        name: of the function.
        parameters: JSON schema of its arguments; empty for a function without any.
        strict: arguments must obey the schema, token by token.
    """

    name: str
    parameters: Json = field(default_factory=dict)
    strict: bool = False
