"""The tool's file names the tokens of the texts, and the engine reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from draftproof.speculation.draft_vocabulary import read_draft_vocabulary
from tools.make_draft_vocabulary import main


def test_frequent_words_and_special_tokens_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["the", "cat", "sat", "on", "mat", "dog"]
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="the"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("the cat sat on the mat the cat")
    out = tmp_path / "tokens.txt"
    main([str(tmp_path), str(tmp_path / "text.txt"), "--rows", "3", "--out", str(out)])
    assert read_draft_vocabulary(out, 7) == (0, 1, 6)
    assert capsys.readouterr().out == f"{out}: 3 tokens\n"
