"""The reasoning before an answer: where it begins and ends, and how many tokens it has."""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.text.output_rules import Thinking
from draftproof.text.tokenizer import Tokenizer

REASONING_BEGIN, REASONING_END = "<think>", "</think>"
BEGIN_BYTES, END_BYTES = REASONING_BEGIN.encode(), REASONING_END.encode()


def thinking_after(prompt: str, budget: int | None = None) -> Thinking | None:
    """What a rendered prompt leaves to the output: to go on reasoning, to begin it, or (None) not to reason.

    Args:
        prompt: with the beginning of the answer, as a chat template renders it.
        budget: most reasoning tokens, None for no limit.
    """
    end = prompt.rstrip()
    if end.endswith(REASONING_END):
        return None
    return Thinking(begins_open=end.endswith(REASONING_BEGIN), budget=budget)


class ReasoningBytes:
    """Finds where reasoning begins and ends in an output's bytes, token by token; in any spelling, as the
    response parser does in its text.

    Args:
        begins_open: the output begins inside the reasoning.
    """

    def __init__(self, begins_open: bool) -> None:
        self._seen: bytes | None = b""
        """Bytes that may belong to the marker that is looked for; None when there is none to look for."""
        self.is_open = begins_open

    def push(self, piece: bytes) -> None:
        """Take a token's bytes; `is_open` then tells of the token after it."""
        if self._seen is None:
            return
        self._seen += piece
        if self.is_open:
            if END_BYTES in self._seen:
                self.is_open, self._seen = False, None
            else:
                self._seen = self._seen[-len(END_BYTES) + 1 :]
            return
        begun = self._seen.lstrip()
        if begun.startswith(BEGIN_BYTES):
            self.is_open, self._seen = True, b""
            self.push(begun[len(BEGIN_BYTES) :])
        elif not BEGIN_BYTES.startswith(begun):
            self._seen = None


class ReasoningCounter:
    """Counts the tokens between ``<think>`` and ``</think>`` in an output.

    Args:
        tokenizer: of the checkpoint.
        thinking: None when nothing is reasoning.
    """

    def __init__(self, tokenizer: Tokenizer, thinking: Thinking | None) -> None:
        self._tokenizer = tokenizer
        self._bytes = None if thinking is None else ReasoningBytes(thinking.begins_open)
        self._count = 0

    def push(self, token_ids: Sequence[int]) -> int:
        """Take new tokens; how many reasoning tokens there are so far."""
        if self._bytes is None:
            return 0
        for token_id in token_ids:
            was_open = self._bytes.is_open
            self._bytes.push(self._tokenizer.piece(token_id))
            self._count += was_open and self._bytes.is_open
        return self._count
