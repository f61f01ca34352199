"""The tokens that drafts are chosen among: files and defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.errors import UsageError
from draftproof.speculation.draft_vocabulary import (
    choose_draft_tokens,
    frequent_tokens,
    read_draft_vocabulary,
    tokens_of_texts,
    write_draft_vocabulary,
)


def test_a_file_names_tokens_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text("# the most frequent\n7\n\n 3 # a comment\n11\n")
    assert read_draft_vocabulary(path, 12) == (3, 7, 11)
    write_draft_vocabulary(path, [5, 2], "two")
    assert path.read_text() == "# two\n2\n5\n"
    assert read_draft_vocabulary(path, 12) == (2, 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("3\nx\n", "line 2: 'x' is no token id below 12"),
        ("12\n", "line 1: '12' is no token id below 12"),
        ("-1\n", "line 1: '-1' is no token id below 12"),
        ("4\n5\n4\n", "line 3: token 4 stands in line 1 already"),
        ("# nothing\n", "names no token"),
    ],
)
def test_a_line_that_is_no_token_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        read_draft_vocabulary(path, 12)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"draft vocabulary .*absent\.txt cannot be read"):
        read_draft_vocabulary(tmp_path / "absent.txt", 12)


def test_low_ids_are_frequent_and_named_tokens_are_always_there() -> None:
    assert frequent_tokens(100, 5, [98, 2, 300]) == (0, 1, 2, 3, 98)
    assert frequent_tokens(4, 10, []) == (0, 1, 2, 3)


def test_tokens_of_texts_are_counted() -> None:
    assert tokens_of_texts([[5, 5, 9], [9, 5, 1], [2]], 3, [7]) == (5, 7, 9)
    assert tokens_of_texts([[4, 3]], 1, []) == (3,)


def test_what_drafts_are_chosen_among_is_one_word(tmp_path: Path) -> None:
    assert choose_draft_tokens("all", 100, [98]) is None
    assert choose_draft_tokens("frequent", 100, [98]) is None
    assert choose_draft_tokens("100", 100, [98]) is None
    assert choose_draft_tokens("3", 100, [98]) == (0, 1, 98)
    assert choose_draft_tokens("frequent", 50_000, [49_999]) == (*range(32_767), 49_999)
    write_draft_vocabulary(tmp_path / "tokens.txt", [5, 2], "two")
    assert choose_draft_tokens(str(tmp_path / "tokens.txt"), 100, [98]) == (2, 5)
    with pytest.raises(UsageError, match=r"0 tokens.*--drafter none"):
        choose_draft_tokens("0", 100, [])
