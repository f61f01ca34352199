"""The reasoning before an answer: where it begins and ends, and how many tokens it has."""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.text.output_rules import Thinking
from draftproof.text.tokenizer import Tokenizer

REASONING_BEGIN, REASONING_END = "<think>", "</think>"


def begins_in_reasoning(prompt: str) -> bool:
    """Whether a rendered prompt ends inside the reasoning, so that the output begins there."""
    raise NotImplementedError


class ReasoningCounter:
    """Counts an output's reasoning tokens; those that begin and end it count too.

    Args:
        tokenizer: of the checkpoint.
        thinking: None when nothing is reasoning.
    """

    def __init__(self, tokenizer: Tokenizer, thinking: Thinking | None) -> None:
        raise NotImplementedError

    def push(self, token_ids: Sequence[int]) -> int:
        """Take new tokens; how many reasoning tokens there are so far."""
        raise NotImplementedError
