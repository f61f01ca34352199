"""Log probabilities of output tokens, in the two shapes of the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftproof.engine.request import TokenLogprob
from draftproof.text.tokenizer import Tokenizer


def chat_logprobs(tokenizer: Tokenizer, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    """The shape of `/v1/chat/completions`."""
    content = [
        _token_entry(tokenizer, item.token_id, item.logprob)
        | {"top_logprobs": [_token_entry(tokenizer, token_id, value) for token_id, value in item.top]}
        for item in logprobs
    ]
    return {"content": content, "refusal": None}


class CompletionLogprobs:
    """The shape of `/v1/completions`, whose offsets count characters from the beginning of the text.

    Args:
        tokenizer: of the checkpoint.
        offset: characters of the echoed prompt.
    """

    def __init__(self, tokenizer: Tokenizer, offset: int) -> None:
        self._tokenizer = tokenizer
        self._offset = offset

    def take(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The next tokens."""
        texts = [_text_of(self._tokenizer, item.token_id) for item in logprobs]
        offsets = []
        for text in texts:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [item.logprob for item in logprobs],
            "top_logprobs": [self._by_text(item.top) for item in logprobs],
            "text_offset": offsets,
        }

    def _by_text(self, top: Sequence[tuple[int, float]]) -> dict[str, float]:
        """The most likely first; of tokens with the same text (parts of a character) the most likely one."""
        found: dict[str, float] = {}
        for token_id, value in top:
            found.setdefault(_text_of(self._tokenizer, token_id), value)
        return found


def _token_entry(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    piece = tokenizer.piece(token_id)
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}


def _text_of(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.piece(token_id).decode("utf-8", "replace")
