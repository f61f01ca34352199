"""What an output must look like, as data that can be sent to another process: grammar and thinking."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

WATCHED_TOKENS = 64
"""How far ahead of the committed tokens a limit is announced; more than two windows have."""


class GrammarKind(Enum):
    """How a grammar is written."""

    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    CHOICE = "choice"


@dataclass(frozen=True)
class Grammar:
    """A language that the answer must belong to.

    Attributes:
        kind: how `text` is written.
        text: the schema as JSON, the regular expression, the Lark grammar, a JSON list of choices; empty for
            JSON_OBJECT.
    """

    kind: GrammarKind
    text: str = ""


@dataclass(frozen=True)
class Thinking:
    """The reasoning before the answer.

    Attributes:
        begins_open: the prompt ends inside the reasoning, so the output begins there; otherwise the output
            may begin with ``<think>``.
        budget: most tokens between ``<think>`` and ``</think>``; after so many ``</think>`` is forced. None
            for no limit.
    """

    begins_open: bool
    budget: int | None = None


@dataclass(frozen=True)
class OutputRules:
    """Everything that limits which tokens an output may have, token by token.

    Attributes:
        grammar: of the answer, after the reasoning; None for free text.
        thinking: None when the output has no reasoning.
    """

    grammar: Grammar | None = None
    thinking: Thinking | None = None
