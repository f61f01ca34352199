"""Headers as the format defines them, and everything that only looks like one."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from draftproof.checkpoint import header
from draftproof.checkpoint.header import BITS_PER_ELEMENT, MAX_HEADER_BYTES, parse_header, read_header
from draftproof.checkpoint.source import LocalSource
from draftproof.errors import CheckpointError, HeaderError
from tests.support.raw_safetensors import BYTES_PER_ELEMENT, RawTensor, write_safetensors

FILE = "model.safetensors"
GOOD = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def text_of(content: Any) -> bytes:
    return json.dumps(content).encode()


def parse(content: Any, data_bytes: int = 16) -> header.FileHeader:
    text = content if isinstance(content, bytes) else text_of(content)
    return parse_header(FILE, text, 8 + len(text) + data_bytes)


def test_an_entry_is_where_the_header_says(tmp_path: Path) -> None:
    tensors = {"a": RawTensor("BF16", (2, 3), bytes(range(12))), "b": RawTensor("U8", (), b"\x07")}
    write_safetensors(tmp_path / FILE, tensors)
    found = read_header(LocalSource(tmp_path), FILE)
    content = (tmp_path / FILE).read_bytes()
    assert [(e.name, e.dtype, e.shape, e.file, e.nbytes) for e in found.tensors] == [
        ("a", "BF16", (2, 3), FILE, 12),
        ("b", "U8", (), FILE, 1),
    ]
    for entry in found.tensors:
        assert content[entry.start : entry.start + entry.nbytes] == tensors[entry.name].data
    assert (found.metadata, found.data_bytes, found.surplus_bytes) == ({"format": "pt"}, 13, 0)


def test_order_of_data_counts_not_order_of_names() -> None:
    second = {"dtype": "U8", "shape": [4], "data_offsets": [16, 20]}
    assert [entry.name for entry in parse({"z": second, "a": GOOD}, 20).tensors] == ["a", "z"]


@pytest.mark.parametrize(("missing", "expected"), [(1, -1), (16, -16), (-1, 1), (-1000, 1000)])
def test_a_file_of_another_length_is_well_formed_and_says_so(missing: int, expected: int) -> None:
    assert parse({"a": GOOD}, 16 - missing).surplus_bytes == expected


def test_tensors_without_elements_take_no_room() -> None:
    empty = {"dtype": "F32", "shape": [0, 7], "data_offsets": [0, 0]}
    assert parse({"a": GOOD, "e": empty}).data_bytes == 16


@pytest.mark.parametrize(
    ("dtype", "shape", "size"), [("F4", [4, 8], 16), ("F6_E2M3", [4, 4], 12), ("F8_E8M0", [5], 5)]
)
def test_small_dtypes_are_measured_in_bits(dtype: str, shape: list[int], size: int) -> None:
    assert parse({"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}, size).data_bytes == size


BROKEN_ENTRIES: dict[str, tuple[Any, str]] = {
    "unknown dtype": ({**GOOD, "dtype": "F31"}, "unknown dtype 'F31'"),
    "dtype no text": ({**GOOD, "dtype": ["F32"]}, "unknown dtype"),
    "too few bytes": ({**GOOD, "shape": [2, 3]}, r"F32 \[2, 3\] needs 24 bytes, its offsets give 16"),
    "too many bytes": ({**GOOD, "shape": [2]}, r"F32 \[2\] needs 8 bytes, its offsets give 16"),
    "half a byte": ({"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}, "needs 2 bytes"),
    "negative size": ({**GOOD, "shape": [-2, -2]}, "-2 is no size"),
    "fractional size": ({**GOOD, "shape": [4.0]}, "is no size"),
    "boolean size": ({**GOOD, "shape": [True, 4]}, "is no size"),
    "text size": ({**GOOD, "shape": ["4"]}, "is no size"),
    "product beyond a word": ({**GOOD, "shape": [2**40, 2**40]}, "more than"),
    "product that wraps to 16": ({**GOOD, "shape": [2**32, 2**32, 4]}, "more than"),
    "one huge size times zero": ({**GOOD, "shape": [2**200, 0]}, "more than"),
    "zero times one huge size": ({**GOOD, "shape": [0, 2**200]}, "more than"),
    "forty dimensions": ({**GOOD, "shape": [1] * 40}, "no list of at most 16"),
    "shape no list": ({**GOOD, "shape": 4}, "no list"),
    "offsets reversed": ({**GOOD, "data_offsets": [16, 0]}, "out of order"),
    "negative offsets": ({**GOOD, "data_offsets": [-16, 0]}, "out of order"),
    "huge offsets": ({**GOOD, "data_offsets": [0, 2**70]}, "out of order or range"),
    "three offsets": ({**GOOD, "data_offsets": [0, 8, 16]}, "no pair"),
    "fractional offsets": ({**GOOD, "data_offsets": [0.0, 16.0]}, "no pair"),
    "missing key": ({"dtype": "F32", "shape": [4]}, "expected exactly"),
    "extra key": ({**GOOD, "more": 1}, "expected exactly"),
    "entry no object": ([1], "expected exactly"),
    "entry null": (None, "expected exactly"),
}


@pytest.mark.parametrize("case", BROKEN_ENTRIES)
def test_broken_entries_are_named(case: str) -> None:
    entry, message = BROKEN_ENTRIES[case]
    with pytest.raises(HeaderError, match=message) as caught:
        parse({"layer.weight": entry})
    assert "layer.weight" in str(caught.value)
    assert str(caught.value).startswith(FILE)


BROKEN_TEXTS: dict[str, tuple[bytes, str]] = {
    "not an object": (b"[1, 2]", "does not begin"),
    "leading space": (b' {"a": 1}', "does not begin"),
    "byte order mark": (b"\xef\xbb\xbf{}", "does not begin"),
    "no UTF-8": (b'{"a\xff": 1}', "no UTF-8 at byte 3"),
    "cut off": (b'{"a": {"dtype": "F32", ', "no JSON at line 1"),
    "two values": (b"{}{}", "no JSON"),
    "same name twice": (
        b'{"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},'
        b'"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}',
        "'a' appears twice",
    ),
    "same key twice": (
        b'{"a":{"dtype":"U8","dtype":"U8","shape":[16],"data_offsets":[0,16]}}',
        "'dtype' appears twice",
    ),
    "half a surrogate": (b'{"\\ud800":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}', "no valid text"),
    "endless name": (
        b'{"' + b"a" * 5000 + b'":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}',
        "5000 characters",
    ),
    "empty name": (b'{"":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}', "0 characters"),
    "NaN": (b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,16]}}', "NaN is no JSON number"),
    "a million digits": (
        b'{"a":{"dtype":"U8","shape":[' + b"9" * 10**6 + b'],"data_offsets":[0,16]}}',
        "digits",
    ),
    "deep lists": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested deeper"),
    "a list for a size": (
        b'{"a":{"dtype":"U8","shape":[[[16]]],"data_offsets":[0,16]}}',
        "a list of 1 is no size",
    ),
    "metadata no object": (b'{"__metadata__":[1]}', "no map of strings"),
    "metadata of numbers": (b'{"__metadata__":{"a":1}}', "no map of strings"),
}


@pytest.mark.parametrize("case", BROKEN_TEXTS)
def test_texts_that_are_no_header(case: str) -> None:
    text, message = BROKEN_TEXTS[case]
    with pytest.raises(HeaderError, match=message):
        parse(text)


def test_every_depth_is_refused_with_a_name() -> None:
    """Just below the parser's own limit, too, where printing the value would fail instead."""
    for depth in range(900, 1010):
        with pytest.raises(HeaderError):
            parse(
                b'{"a":{"dtype":"U8","shape":[' + b"[" * depth + b"]" * depth + b'],"data_offsets":[0,16]}}'
            )


def test_overlap_and_holes_are_named() -> None:
    def entry(start: int, end: int) -> dict[str, Any]:
        return {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}

    with pytest.raises(HeaderError, match="tensor b overlaps a"):
        parse({"a": entry(0, 8), "b": entry(4, 12)})
    with pytest.raises(HeaderError, match="tensor b leaves a hole after a"):
        parse({"a": entry(0, 8), "b": entry(9, 12)})
    with pytest.raises(HeaderError, match="tensor a leaves a hole after the header"):
        parse({"a": entry(1, 8)})
    with pytest.raises(HeaderError, match="overlaps"):
        parse({"a": entry(0, 8), "b": entry(0, 8)})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x02", "1 bytes are too few"),
        (struct.pack("<Q", 2) + b"{", "too few"),
        (struct.pack("<Q", 100) + b"{}", "claims 100 bytes, the file has 10"),
        (struct.pack("<Q", 2**63) + b"{}", f"the format allows {MAX_HEADER_BYTES}"),
        (struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{}", "the format allows"),
        (b"PK\x03\x04" + bytes(60), "a zip archive"),
        (b"<!DOCTYPE html><html>429</html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
    ],
)
def test_files_that_are_no_safetensors_files(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(HeaderError, match=message) as caught:
        read_header(LocalSource(tmp_path), FILE)
    assert "fetch it again" in caught.value.remedy


def test_a_small_text_cannot_fill_the_memory() -> None:
    """Thirty megabytes of brackets would become gigabytes of lists."""
    bomb = b'{"a":[' + b"[]," * 13_000_000 + b"[]]}"
    started = time.perf_counter()
    with pytest.raises(HeaderError, match="more than 12000000 values"):
        parse(bomb)
    assert time.perf_counter() - started < 2


def test_only_the_header_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_safetensors(tmp_path / FILE, {"a": RawTensor("U8", (100_000,), bytes(100_000))})
    source = LocalSource(tmp_path)
    read: list[int] = []
    whole = source.read_range
    monkeypatch.setattr(
        source, "read_range", lambda name, start, length: (read.append(length), whole(name, start, length))[1]
    )
    read_header(source, FILE)
    assert sum(read) < 200


# Properties.

SMALL_DTYPES = sorted(BYTES_PER_ELEMENT)
NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__")


@st.composite
def raw_tensors(draw: st.DrawFn) -> dict[str, RawTensor]:
    tensors = {}
    for name in draw(st.lists(NAMES, unique=True, max_size=5)):
        dtype = draw(st.sampled_from(SMALL_DTYPES))
        shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
        size = BYTES_PER_ELEMENT[dtype]
        for side in shape:
            size *= side
        tensors[name] = RawTensor(dtype, shape, bytes(size))
    return tensors


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensors=raw_tensors())
def test_every_well_formed_file_is_read_as_written(tensors: dict[str, RawTensor], tmp_path: Path) -> None:
    write_safetensors(tmp_path / FILE, tensors)
    found = read_header(LocalSource(tmp_path), FILE)
    assert {entry.name: (entry.dtype, entry.shape) for entry in found.tensors} == {
        name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()
    }
    assert found.surplus_bytes == 0


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensors=raw_tensors(), data=st.data())
def test_damaged_files_are_refused_or_are_what_the_reference_accepts(
    tensors: dict[str, RawTensor], data: st.DataObject, tmp_path: Path
) -> None:
    write_safetensors(tmp_path / FILE, tensors)
    content = bytearray((tmp_path / FILE).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    (tmp_path / FILE).write_bytes(content)
    try:
        found = read_header(LocalSource(tmp_path), FILE)
    except CheckpointError:
        return
    if found.surplus_bytes == 0:
        with safetensors.safe_open(tmp_path / FILE, framework="numpy") as reference:
            assert set(reference.keys()) == {entry.name for entry in found.tensors}


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(sorted(BITS_PER_ELEMENT)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(content=st.dictionaries(st.text(max_size=5) | st.just("__metadata__"), JSON_VALUES, max_size=4))
@example(content={"a": GOOD})
def test_any_json_is_a_header_or_a_header_error(content: dict[str, Any]) -> None:
    text = json.dumps(content).encode()
    try:
        found = parse_header(FILE, text, 8 + len(text) + 16)
    except HeaderError:
        return
    assert found.data_bytes == sum(entry.nbytes for entry in found.tensors)


@settings(max_examples=200)
@given(text=st.binary(max_size=60))
def test_any_bytes_are_a_header_or_a_header_error(text: bytes) -> None:
    for candidate in (text, b"{" + text):
        try:
            parse_header(FILE, candidate, 8 + len(candidate))
        except HeaderError:
            continue
