"""Which calls of functions an answer may, must or must not hold, as a grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from draftproof.text.output_rules import Grammar
from draftproof.text.tool_calls import ToolFunction


class ToolChoiceMode(Enum):
    """What a client wants of the functions."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True)
class ToolChoice:
    """What a client wants of the functions.

    Attributes:
        mode: whether calls may or must be.
        name: of the function that must be called, when the mode is NAMED.
    """

    mode: ToolChoiceMode = ToolChoiceMode.AUTO
    name: str = ""


def tool_call_grammar(
    functions: Sequence[ToolFunction], choice: ToolChoice = ToolChoice(), parallel: bool = True
) -> Grammar | None:
    """The grammar of an answer that may hold calls; None when nothing is to be enforced.

    Args:
        functions: that are offered.
        choice: whether calls may or must be.
        parallel: more than one call may be in an answer.

    Raises:
        UsageError: the choice names a function that is not offered, or a schema cannot be enforced.
    """
    raise NotImplementedError
