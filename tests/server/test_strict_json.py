"""JSON from clients."""

from __future__ import annotations

import pytest

from draftproof.server.strict_json import MOST_LEVELS, JsonFault, parse_json


def nested(levels: int) -> bytes:
    """Lists and objects inside each other, so many."""
    return b'[{"a":' * (levels // 2) + b"[]" * (levels % 2) + b"1" * (1 - levels % 2) + b"}]" * (levels // 2)


@pytest.mark.parametrize("levels", [1, 2, MOST_LEVELS])
def test_as_many_levels_as_allowed_are_read(levels: int) -> None:
    assert parse_json(nested(levels)) is not None
    assert parse_json(nested(levels).decode()) is not None


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, MOST_LEVELS + 2, 900])
def test_more_levels_are_refused(levels: int) -> None:
    with pytest.raises(JsonFault, match="deeper than 100 levels"):
        parse_json(nested(levels))


def test_many_values_side_by_side_are_no_depth() -> None:
    assert parse_json(b"[" + b"[1]," * 1000 + b"[1]]") == [[1]] * 1001


def test_brackets_in_texts_are_no_depth() -> None:
    assert parse_json(b'["' + b"[" * 1000 + b'"]') == ["[" * 1000]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"NaN", b'"\\ud800"', b'"\xff"', b"1e999", "\ud800", b"{'a': 1}"]
)
def test_what_is_no_json_is_refused(text: bytes | str) -> None:
    with pytest.raises(JsonFault):
        parse_json(text)
