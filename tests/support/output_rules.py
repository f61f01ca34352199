"""Constraints over the tokenizer of generated checkpoints."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from draftproof.text.output_constraint import OutputConstraint
from draftproof.text.output_rules import Grammar, GrammarKind, OutputRules, Thinking
from draftproof.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizer import END_OF_TEXT, SPECIAL_TOKENS, TURN_END, write_tokenizer

# Machines that only run kernels do not have llguidance.
GrammarCompiler = pytest.importorskip("draftproof.text.grammar").GrammarCompiler

VOCABULARY = 320
ENDS = (END_OF_TEXT, TURN_END)
THINK, END_THINK = SPECIAL_TOKENS["<think>"], SPECIAL_TOKENS["</think>"]
OPEN = Thinking(begins_open=True)
WHOLE_NUMBER = Grammar(
    GrammarKind.JSON_SCHEMA,
    json.dumps(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        }
    ),
)
"""Answers like {"a": 12}."""


@cache
def tokenizer() -> Tokenizer:
    """Of generated checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        return Tokenizer.load(Path(folder))


@cache
def compiler() -> Any:
    """Over the tokenizer, with a padded vocabulary."""
    return GrammarCompiler(tokenizer(), ENDS, VOCABULARY)


def encode(text: str) -> tuple[int, ...]:
    """Token ids of a text."""
    return tuple(tokenizer().encode_rendered(text))


def fresh(grammar: Grammar | None, thinking: Thinking | None = None) -> OutputConstraint:
    """A constraint for one output."""
    constraint = compiler().constraint(OutputRules(grammar, thinking))
    assert constraint is not None
    return constraint
