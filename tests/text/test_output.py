"""Tokens to shown text of one request."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.text.detokenizer import Detokenizer
from draftproof.text.output import OutputText
from draftproof.text.stop import StopStrings
from draftproof.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizer import TURN_END, write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(path)
    return Tokenizer.load(path)


def output(tokenizer: Tokenizer, *stops: str) -> OutputText:
    return OutputText(Detokenizer(tokenizer, tokenizer.special_ids), StopStrings(stops))


def test_text_comes_in_whole_characters_and_each_once(tokenizer: Tokenizer) -> None:
    text = output(tokenizer)
    first, second = "é".encode()
    assert text.push([65, first]) is None
    assert text.take() == "A"
    assert text.take() == ""
    assert text.push([second, TURN_END]) is None
    assert text.push([first]) is None
    text.finish()
    assert text.take() == "é\ufffd"


def test_the_token_that_completes_a_stop_string_is_reported(tokenizer: Tokenizer) -> None:
    text = output(tokenizer, "END")
    assert text.push(list(b"xE")) is None
    assert text.take() == "x"
    assert text.push([*b"NDyyy", "é".encode()[0]]) == 1
    text.finish()
    assert text.take() == ""
    assert text.matched_stop == "END"


def test_held_text_is_shown_when_the_output_ends_otherwise(tokenizer: Tokenizer) -> None:
    text = output(tokenizer, "END")
    assert text.push(list(b"xEN")) is None
    assert text.take() == "x"
    text.finish()
    text.finish()
    assert text.take() == "EN"
    assert text.matched_stop is None


def test_a_stop_string_of_half_a_character_is_found_at_the_token_that_completes_it(
    tokenizer: Tokenizer,
) -> None:
    text = output(tokenizer, "漢")
    assert text.push([65, *"漢字".encode()]) == 3
    assert text.take() == "A"
