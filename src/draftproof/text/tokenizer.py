"""Text to token ids and back, from a checkpoint's own tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from draftproof.checkpoint.bounded_json import JsonLimits, JsonProblem, parse_object
from draftproof.checkpoint.source import LocalSource
from draftproof.errors import CheckpointError, UnsupportedRequest

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
MAX_TOKENIZER_BYTES = 256 << 20
MAX_CONFIG_BYTES = 64 << 20
CONFIG_LIMITS = JsonLimits(values=2_000_000, depth=64)
NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class SpecialTokens:
    """The tokens that tokenizer_config.json names by what they are for.

    Attributes:
        by_name: (name, text) pairs, like ("eos_token", "<|im_end|>"), of those that it names.
    """

    by_name: tuple[tuple[str, str], ...]

    @classmethod
    def of_config(cls, config: dict[str, Any]) -> SpecialTokens:
        """Read them from tokenizer_config.json, where each is a text or an object with its text as
        `content`."""
        found = []
        for name in NAMED_TOKENS:
            value = config.get(name)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                found.append((name, text))
        return cls(tuple(found))

    def text(self, name: str) -> str | None:
        """Text of the token with this name."""
        return dict(self.by_name).get(name)


class Tokenizer:
    """A checkpoint's tokenizer.

    Args:
        backend: the parsed tokenizer.json.
        special_tokens: what tokenizer_config.json names.
    """

    def __init__(self, backend: tokenizers.Tokenizer, special_tokens: SpecialTokens) -> None:
        self._backend = backend
        self.special_tokens = special_tokens
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read a checkpoint's tokenizer.

        Raises:
            CheckpointError: tokenizer.json is missing or cannot be parsed, or tokenizer_config.json is
                broken.
        """
        source = LocalSource(folder)
        if TOKENIZER_FILE not in source.list_files():
            raise CheckpointError(
                f"{folder} has no {TOKENIZER_FILE}",
                "Make one with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER).",
            )
        data = source.read(TOKENIZER_FILE, MAX_TOKENIZER_BYTES)
        try:
            backend = tokenizers.Tokenizer.from_buffer(data)
        except Exception as error:  # the library raises no narrower type
            raise CheckpointError(
                f"{folder / TOKENIZER_FILE} cannot be used: {error}", "Fetch the file again."
            ) from error
        # A file may ask for truncation or padding, which would change prompts without a word.
        backend.no_truncation()
        backend.no_padding()
        return cls(backend, SpecialTokens.of_config(read_tokenizer_config(source)))

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens, added ones included; the model's logits may be wider."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Tokens that `decode` leaves out: those that tokenizer.json marks as special."""
        added = self._backend.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)

    @property
    def eos_token_id(self) -> int | None:
        """The end-of-sequence token that tokenizer_config.json names; generation_config.json may name
        more."""
        text = self.special_tokens.text("eos_token")
        return None if text is None else self.token_id(text)

    def token_id(self, token: str) -> int | None:
        """Id of a token by its text, None when there is no such token."""
        return self._backend.token_to_id(token)

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with what the tokenizer itself adds (a beginning-of-sequence
        token)."""
        return self._backend.encode(text, add_special_tokens=True).ids

    def encode_rendered(self, text: str) -> list[int]:
        """Token ids of what a chat template rendered: the special tokens are in the text, and none is
        added."""
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids; bytes that are no UTF-8 become U+FFFD, ids without a token become nothing."""
        return self._backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def piece(self, token_id: int) -> bytes:
        """The bytes that a token stands for; empty for an id without a token.

        Raises:
            UnsupportedRequest: the tokenizer does not work on bytes.
        """
        found = self._pieces.get(token_id)
        if found is None:
            self._require_bytes()
            found = self._pieces[token_id] = _bytes_of(self._backend.id_to_token(token_id))
        return found

    def _require_bytes(self) -> None:
        """Refuse tokenizers whose tokens have no text of their own (a token's text may depend on its
        neighbours)."""
        decoder = self._backend.decoder
        kind = json.loads(decoder.__getstate__())["type"] if decoder is not None else None
        if kind != "ByteLevel":
            raise UnsupportedRequest(
                f"{TOKENIZER_FILE} has decoder {kind}; only byte-level tokenizers can stream text",
                "Decode the whole output at once.",
            )


def read_tokenizer_config(source: LocalSource) -> dict[str, Any]:
    """tokenizer_config.json, empty when there is none.

    Raises:
        CheckpointError: it is broken.
    """
    if CONFIG_FILE not in source.list_files():
        return {}
    try:
        return parse_object(source.read(CONFIG_FILE, MAX_CONFIG_BYTES), CONFIG_LIMITS)
    except JsonProblem as error:
        raise CheckpointError(f"{source.label}/{CONFIG_FILE}: {error}") from error


def _byte_of_character() -> dict[str, int]:
    """The byte that each character of a byte-level token stands for.

    Printable Latin-1 characters stand for their own code; the other 68 bytes, in rising order, for U+0100
    onwards (the table that GPT-2 introduced).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + index): byte for index, byte in enumerate(hidden)}


_BYTE_OF_CHARACTER = _byte_of_character()


def _bytes_of(token: str | None) -> bytes:
    """Bytes of a token's stored text; a text with any other character (an added token) stands for itself."""
    if token is None:
        return b""
    try:
        return bytes(_BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:
        return token.encode("utf-8")
