"""Config files: read within limits, and wrong fields named by their path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.checkpoint.bounded_json import JsonLimits, JsonProblem, parse_object
from draftproof.checkpoint.config import ConfigReader, read_config_file, read_config_files
from draftproof.checkpoint.source import LocalSource
from draftproof.errors import ConfigError


def reader(content: dict[str, Any]) -> ConfigReader:
    return ConfigReader("config.json", "", content)


def problem_of(folder: Path, content: bytes) -> str:
    (folder / "config.json").write_bytes(content)
    file = read_config_file(LocalSource(folder), "config.json")
    assert file.content is None
    with pytest.raises(ConfigError) as caught:
        file.require()
    return str(caught.value)


def test_absent_files_are_values(tmp_path: Path) -> None:
    files = read_config_files(LocalSource(tmp_path))
    assert not files.config.present
    assert files.generation_config.optional() is None
    with pytest.raises(ConfigError, match=r"there is no config\.json"):
        files.config.require()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" \n", "config.json: the file is empty"),
        (b"not json", "config.json: no JSON at line 1, column 1"),
        (b"[1]", "config.json: the top level is no object"),
        (b'{"a": 1,\n "a": 2}', "config.json: key 'a' appears twice"),
        (b'{"a": {"b": 1, "b": 1}}', "key 'b' appears twice"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": -Infinity}', "-Infinity is no JSON number"),
        (b'{"a": 1e400}', "the number 1e400 is too large"),
        (b'{"a": ' + b"1" * 5000 + b"}", "too many digits"),
        (b'{"a": ' + b"[" * 200_000 + b"}", "nested deeper"),
        (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", "nested deeper than 32 levels"),
        (b'{"a": "\xff"}', "no UTF-8 at byte 7"),
        (b'{"a": [' + b"0," * 5_000_000 + b"0]}", "more than 4000000 values"),
        (b'{"a": 1} trailing', "no JSON"),
        (b"\x00\x01\x02", "no JSON"),
    ],
)
def test_unusable_files_say_why(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in problem_of(tmp_path, content)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(10**12)
    file_read = read_config_file(LocalSource(tmp_path), "config.json")
    assert file_read.problem is not None
    assert "more than the" in str(file_read.problem)


def test_a_link_out_of_the_folder_is_a_problem_not_an_absence(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "model" / "config.json").symlink_to("../secret")
    file = read_config_file(LocalSource(tmp_path / "model"), "config.json")
    assert file.present
    with pytest.raises(ConfigError, match=r"config\.json: it is a link that leaves the folder"):
        file.require()


@given(content=st.binary(max_size=40))
def test_any_bytes_are_an_object_or_a_json_problem(content: bytes) -> None:
    for candidate in (content, b"{" + content, b'{"a":' + content + b"}"):
        try:
            parse_object(candidate, JsonLimits(values=100, depth=4))
        except JsonProblem:
            continue


@given(
    content=st.dictionaries(
        st.text(max_size=4),
        st.none()
        | st.booleans()
        | st.integers(-(2**60), 2**60)
        | st.text(max_size=4)
        | st.lists(st.integers(0, 3), max_size=3),
        max_size=4,
    )
)
def test_every_small_object_is_read_as_written(content: dict[str, Any]) -> None:
    assert parse_object(json.dumps(content).encode(), JsonLimits(values=1000, depth=2)) == content


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0, "found 0"),
        (513, "found 513"),
        (-3, "found -3"),
        (True, "found true"),
        (1.0, "found 1.0"),
        ("8", "found '8'"),
        ([8], "found a list of 1"),
        ({}, "found an object of 0 fields"),
        (10**60, "found an integer of more than 40 digits"),
        ("x" * 500, "..."),
    ],
)
def test_integers_are_named_by_path_expectation_and_finding(value: Any, found: str) -> None:
    nested = reader({"text_config": {"num_experts": value}}).section("text_config")
    with pytest.raises(ConfigError) as caught:
        nested.integer("num_experts", 1, 512)
    message = str(caught.value)
    assert message.startswith(
        "config.json: text_config.num_experts: expected an integer from 1 to 512, found "
    )
    assert found in message
    assert len(message) < 200


def test_missing_fields_are_called_missing() -> None:
    with pytest.raises(
        ConfigError, match=r"config\.json: hidden_size: expected an integer .*, the field is missing"
    ):
        reader({}).integer("hidden_size")
    with pytest.raises(ConfigError, match="found null"):
        reader({"hidden_size": None}).integer("hidden_size")


def test_defaults_stand_for_absent_and_null_fields_only() -> None:
    content = reader({"null": None, "zero": 0, "false": False, "empty": ""})
    assert content.integer("absent", default=7) == content.integer("null", default=7) == 7
    assert content.integer("zero", 0, default=7) == 0
    assert content.boolean("false", default=True) is False
    assert content.string("empty", default="x") == ""
    assert content.strings("absent", 3) == content.integers("null", 0, 9, 3) == ()


@pytest.mark.parametrize(
    ("method", "arguments", "value", "expected"),
    [
        ("number", ("k", 0.0, 1.0), 2, "a number from 0 to 1"),
        ("number", ("k", 0.0, 1.0), True, "a number"),
        ("boolean", ("k",), 1, "true or false"),
        ("string", ("k",), 1, "a text"),
        ("strings", ("k", 2), ["a", "b", "c"], "a list of at most 2 texts"),
        ("strings", ("k", 2), "a", "a list"),
        ("integers", ("k", 0, 9, 2), [1, 10], "integers from 0 to 9"),
        ("integers", ("k", 0, 9, 2), "1", "integers"),
        ("section", ("k",), [], "an object"),
    ],
)
def test_every_type_says_what_it_expects(method: str, arguments: Any, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"k: expected {expected}"):
        getattr(reader({"k": value}), method)(*arguments)


def test_one_integer_is_a_list_of_one() -> None:
    assert reader({"eos_token_id": 5}).integers("eos_token_id", 0, 9, 4) == (5,)
    assert reader({"eos_token_id": [5, 6]}).integers("eos_token_id", 0, 9, 4) == (5, 6)
