"""Text of a growing output, whole characters only."""

from __future__ import annotations

import codecs

from draftproof.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns one output's tokens into text as they come.

    The texts that `push` and `finish` return add up to what `Tokenizer.decode` says of all tokens at once.
    The bytes of a character that later tokens may complete are held back until they do, or until it is sure
    that they cannot.

    Args:
        tokenizer: of the checkpoint.
        hidden_ids: tokens that have no text: special ones, as a rule, and those that end the output.
    """

    def __init__(self, tokenizer: Tokenizer, hidden_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._hidden_ids = hidden_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Take the next token; the text that it completes, which may be empty."""
        if token_id in self._hidden_ids:
            return ""
        return self._decoder.decode(self._tokenizer.piece(token_id))

    def finish(self) -> str:
        """The end of the output: U+FFFD for a character that was never completed, else nothing."""
        return self._decoder.decode(b"", final=True)
