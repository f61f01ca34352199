"""Safetensors headers, read within limits: every claim of a header is checked before anything trusts it.

A file is a little-endian length N of 8 bytes, N bytes of JSON (name -> dtype, shape, data_offsets), the data.
https://huggingface.co/docs/safetensors: offsets are relative to the data, cover it without holes or overlap.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from draftproof.checkpoint.bounded_json import JsonLimits, JsonProblem, parse_object, shown_value
from draftproof.checkpoint.source import Source
from draftproof.errors import HeaderError

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
MAX_DIMENSIONS = 16
MAX_NAME_LENGTH = 1024
MAX_ELEMENTS = 2**48

_LIMITS = JsonLimits(values=12_000_000, depth=None)
# What is found under such names instead; each would be an absurd length.
_OTHER_FILES = (
    (b"version ", "a Git LFS pointer (run `git lfs pull`)"),
    (b"<!DOCTYP", "a web page"),
    (b"<html", "a web page"),
    (b"PK\x03\x04", "a zip archive (PyTorch weights)"),
    (b"GGUF", "a GGUF file"),
)
_LENGTH_BYTES = 8
_KEYS = frozenset(("dtype", "shape", "data_offsets"))

BITS_PER_ELEMENT: Mapping[str, int] = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}
"""Every dtype of the format, by its name on disk."""


class TensorEntry(NamedTuple):
    """One tensor as its header describes it.

    Attributes:
        name: full name.
        dtype: the format's name: "BF16", "F8_E4M3", "U8", ...
        shape: elements per dimension, as stored (a packed matrix has half the columns).
        file: relative name of its file.
        start: first byte, counted from the beginning of the file.
        nbytes: size of its data.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    nbytes: int


@dataclass(frozen=True)
class FileHeader:
    """A well-formed header.

    Attributes:
        file: relative name.
        tensors: in the order of their data.
        metadata: the free-form strings of `__metadata__`.
        data_start: first byte of the data, counted from the beginning of the file.
        data_bytes: size of the data that the header describes.
        surplus_bytes: size of the file minus what the header describes: negative for a truncated file,
            positive for bytes that belong to no tensor.
    """

    file: str
    tensors: tuple[TensorEntry, ...]
    metadata: Mapping[str, str]
    data_start: int
    data_bytes: int
    surplus_bytes: int


def read_header(source: Source, file: str) -> FileHeader:
    """Reads and checks the header of one file.

    Args:
        source: where the file is.
        file: its name; must be listed.

    Raises:
        HeaderError: the file is no safetensors file, or its header contradicts itself.
        CheckpointError: the file cannot be read.
    """
    size = source.list_files().get(file, 0)
    beginning = source.read_range(file, 0, min(size, max(source.first_read, _LENGTH_BYTES)))
    length = _header_length(file, beginning, size)
    end = _LENGTH_BYTES + length
    text = beginning[_LENGTH_BYTES:end]
    if len(text) < length:
        start = _LENGTH_BYTES + len(text)
        text += source.read_range(file, start, end - start)
    return parse_header(file, text, size)


def parse_header(file: str, text: bytes, file_size: int) -> FileHeader:
    """Checks a header's text.

    Args:
        file: name of its file, for entries and messages.
        text: the JSON, without the 8 bytes before it.
        file_size: bytes of the whole file.

    Raises:
        HeaderError: it is malformed or contradicts itself.
    """
    if not text.startswith(b"{"):
        raise _broken(file, "the header does not begin with '{'")
    try:
        content = parse_object(text, _LIMITS)
    except JsonProblem as error:
        raise _broken(file, f"the header is unusable: {error}") from error
    metadata = _metadata(file, content.pop("__metadata__", {}))
    data_start = _LENGTH_BYTES + len(text)
    shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
    entries = [_entry(file, name, fields, data_start, shapes) for name, fields in content.items()]
    entries.sort(key=_POSITION)
    data_bytes = _check_cover(file, entries, data_start)
    return FileHeader(
        file, tuple(entries), metadata, data_start, data_bytes, file_size - data_start - data_bytes
    )


def _header_length(file: str, beginning: bytes, size: int) -> int:
    if size == 0:
        raise _broken(file, "the file is empty")
    if size < _LENGTH_BYTES + 2:
        raise _broken(file, f"{size} bytes are too few for a header")
    (length,) = struct.unpack("<Q", beginning[:_LENGTH_BYTES])
    for start, kind in _OTHER_FILES:
        if beginning.startswith(start):
            raise _broken(file, f"this is {kind}, no safetensors file")
    if length > MAX_HEADER_BYTES:
        raise _broken(file, f"the header claims {length} bytes, the format allows {MAX_HEADER_BYTES}")
    if _LENGTH_BYTES + length > size:
        raise _broken(file, f"the header claims {length} bytes, the file has {size}")
    return int(length)


def _metadata(file: str, content: Any) -> dict[str, str]:
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise _broken(file, "__metadata__ is no map of strings")
    return content


def _entry(
    file: str, name: str, fields: Any, data_start: int, shapes: dict[tuple[int, ...], tuple[int, ...]]
) -> TensorEntry:
    _check_name(file, name)
    if not isinstance(fields, dict) or fields.keys() != _KEYS:
        raise _broken(file, f"tensor {name}: expected exactly dtype, shape and data_offsets")
    dtype = fields["dtype"]
    bits = BITS_PER_ELEMENT.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise _broken(file, f"tensor {name}: unknown dtype {shown_value(dtype)}")
    shape, elements = _shape(file, name, fields["shape"])
    start, end = _offsets(file, name, fields["data_offsets"])
    if elements * bits != (end - start) * 8:
        raise _broken(
            file,
            f"tensor {name}: {dtype} {list(shape)} needs {-(-elements * bits // 8)} bytes, "
            f"its offsets give {end - start}",
        )
    # Interning keeps hundreds of thousands of entries small.
    return TensorEntry(
        name, _DTYPE_NAMES[dtype], shapes.setdefault(shape, shape), file, data_start + start, end - start
    )


_DTYPE_NAMES = {name: name for name in BITS_PER_ELEMENT}
_POSITION = attrgetter("start", "nbytes")


def _check_name(file: str, name: str) -> None:
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise _broken(file, f"a tensor name of {len(name)} characters")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise _broken(file, f"tensor name {name!r} is no valid text") from error


def _shape(file: str, name: str, value: Any) -> tuple[tuple[int, ...], int]:
    """The shape and its number of elements."""
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        raise _broken(file, f"tensor {name}: the shape is no list of at most {MAX_DIMENSIONS} sizes")
    elements = 1
    for size in value:
        if type(size) is not int or size < 0:
            raise _broken(file, f"tensor {name}: {shown_value(size)} is no size of a dimension")
        elements *= size
        # After every factor, so that the product never grows past a machine word.
        if size > MAX_ELEMENTS or elements > MAX_ELEMENTS:
            raise _broken(file, f"tensor {name}: more than {MAX_ELEMENTS} elements")
    return tuple(value), elements


def _offsets(file: str, name: str, value: Any) -> tuple[int, int]:
    start, end = value if isinstance(value, list) and len(value) == 2 else (None, None)
    if type(start) is not int or type(end) is not int:
        raise _broken(file, f"tensor {name}: data_offsets are no pair of integers")
    if not 0 <= start <= end < 2**63:
        raise _broken(file, f"tensor {name}: data_offsets {str(value)[:80]} are out of order or range")
    return start, end


def _check_cover(file: str, entries: list[TensorEntry], data_start: int) -> int:
    """Checks that the tensors follow each other without holes or overlap; returns the size of all."""
    position = data_start
    before = "the header"
    for entry in entries:
        if entry.start != position:
            kind = "overlaps" if entry.start < position else "leaves a hole after"
            raise _broken(file, f"tensor {entry.name} {kind} {before}")
        position += entry.nbytes
        before = entry.name
    return position - data_start


def _broken(file: str, what: str) -> HeaderError:
    return HeaderError(f"{file}: {what}", "The file is damaged or no safetensors file; fetch it again.")
