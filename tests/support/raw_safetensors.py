"""Safetensors files of any content, read and written byte by byte. No torch, no checks, all in memory."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BYTES_PER_ELEMENT = {
    "F64": 8,
    "I64": 8,
    "F32": 4,
    "I32": 4,
    "BF16": 2,
    "F16": 2,
    "F8_E4M3": 1,
    "U8": 1,
    "I8": 1,
}


@dataclass(frozen=True)
class RawTensor:
    """A tensor as it lies in a safetensors file.

    Attributes:
        dtype: safetensors' name: "BF16", "F8_E4M3", ...
        shape: elements per dimension.
        data: little-endian bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def read_safetensors(path: Path) -> dict[str, RawTensor]:
    """All tensors of a well-formed file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    header.pop("__metadata__", None)
    return {
        name: RawTensor(entry["dtype"], tuple(entry["shape"]), body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def write_safetensors(path: Path, tensors: Mapping[str, RawTensor]) -> None:
    """Writes a well-formed file, tensors in the given order, header padded to 8 bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [start, end]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    data = b"".join(tensor.data for tensor in tensors.values())
    replace_bytes(path, struct.pack("<Q", len(encoded)) + encoded + data)


def replace_bytes(path: Path, content: bytes) -> None:
    """Writes a new file under an old name: whoever mapped the old one into memory keeps it."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)


def encode_element(value: float, dtype: str) -> bytes:
    """One element; BF16 is cut, not rounded, and FP8 takes only 0, 1, -1 and NaN."""
    if dtype in ("F32", "BF16"):
        return struct.pack("<f", value)[-BYTES_PER_ELEMENT[dtype] :]
    if dtype == "F8_E4M3":
        return b"\x7f" if math.isnan(value) else {0.0: b"\0", 1.0: b"\x38", -1.0: b"\xb8"}[value]
    return int(value).to_bytes(BYTES_PER_ELEMENT[dtype], "little", signed=dtype != "U8")


def decode_element(element: bytes, dtype: str) -> float:
    """One element of BF16 or F32."""
    padded = b"\0\0" + element if dtype == "BF16" else element
    return float(struct.unpack("<f", padded)[0])
