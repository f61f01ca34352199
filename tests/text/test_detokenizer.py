"""Streamed text adds up to the text of all tokens at once, and never shows half a character."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.text.detokenizer import Detokenizer
from draftproof.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizer import SPECIAL_TOKENS, TURN_END, write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(path)
    return Tokenizer.load(path)


def stream(tokenizer: Tokenizer, token_ids: list[int], hidden: frozenset[int] = frozenset()) -> list[str]:
    detokenizer = Detokenizer(tokenizer, hidden)
    return [*(detokenizer.push(token_id) for token_id in token_ids), detokenizer.finish()]


def test_bytes_of_a_character_are_held_back_until_it_is_whole(tokenizer: Tokenizer) -> None:
    """In this tokenizer ids 0 to 255 are the bytes."""
    assert stream(tokenizer, list("é漢🙂".encode())) == ["", "é", "", "", "漢", "", "", "", "🙂", ""]


def test_a_byte_that_cannot_go_on_becomes_one_replacement_at_once(tokenizer: Tokenizer) -> None:
    assert stream(tokenizer, [0xFF, 0x41]) == ["\ufffd", "A", ""]
    assert stream(tokenizer, [0xE6, 0xBC, 0x41]) == ["", "", "\ufffdA", ""]
    assert stream(tokenizer, [0x41, 0xF0, 0x9F]) == ["A", "", "", "\ufffd"]


def test_a_real_replacement_character_is_text_like_any_other(tokenizer: Tokenizer) -> None:
    assert stream(tokenizer, list("\ufffd".encode())) == ["", "", "\ufffd", ""]


def test_hidden_tokens_have_no_text_and_cut_no_character(tokenizer: Tokenizer) -> None:
    first, second = "é".encode()
    think = SPECIAL_TOKENS["<think>"]
    assert stream(tokenizer, [first, TURN_END, second, think], tokenizer.special_ids) == [
        "",
        "",
        "é",
        "<think>",
        "",
    ]


def test_added_tokens_with_characters_outside_the_byte_table_stand_for_themselves(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    texts = ["two words", "漢字", "éé"]
    content["added_tokens"] += [
        flags | {"id": 312 + index, "content": text} for index, text in enumerate(texts)
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = Tokenizer.load(tmp_path)
    # A Latin-1 letter is in the byte table and so stands for one byte, which alone is no UTF-8.
    assert stream(tokenizer, [312, 313, 314]) == ["two words", "漢字", "\ufffd", "\ufffd"]
    assert tokenizer.decode([312, 313, 314]) == "two words漢字\ufffd\ufffd"


TOKEN_IDS = st.one_of(
    st.lists(st.integers(0, 320), max_size=30),
    st.binary(max_size=30).map(list),
    st.text(max_size=12).map(lambda text: list(text.encode())),
    st.text(min_size=1, max_size=12).map(lambda text: list(text.encode())[:-1]),
)


@given(TOKEN_IDS)
@settings(max_examples=300, deadline=None)
def test_the_pieces_add_up_to_the_full_decode(tokenizer: Tokenizer, token_ids: list[int]) -> None:
    assert "".join(stream(tokenizer, token_ids)) == tokenizer.decode(token_ids, skip_special_tokens=False)
    assert "".join(stream(tokenizer, token_ids, tokenizer.special_ids)) == tokenizer.decode(token_ids)


@given(st.text(max_size=20))
@settings(max_examples=100, deadline=None)
def test_text_that_is_whole_never_shows_a_replacement(tokenizer: Tokenizer, text: str) -> None:
    pieces = stream(tokenizer, tokenizer.encode(text))
    assert "".join(pieces) == text
    shown = ""
    for piece in pieces:
        shown += piece
        assert text.startswith(shown)
