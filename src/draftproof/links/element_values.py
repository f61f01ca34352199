"""Bytes of a tensor as numbers, without torch: every safetensors dtype that weights and scales come in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]

_NUMPY_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}


def decode(data: bytes, dtype: str) -> Values | None:
    """The numbers behind raw little-endian bytes.

    Args:
        data: whole elements of one tensor.
        dtype: safetensors name ("BF16", "F8_E4M3", ...).

    Returns:
        float32 [elements]; None for a dtype that is not known here.
    """
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    if dtype in _BYTE_TABLES:
        return _BYTE_TABLES[dtype][np.frombuffer(data, np.uint8)]
    if dtype in _NUMPY_TYPES:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.frombuffer(data, _NUMPY_TYPES[dtype]).astype(np.float32)
    return None


def decode_e2m1(data: bytes) -> Values:
    """Packed 4-bit floats, the low nibble first: float32 [2 * bytes]."""
    return _E2M1_PAIRS[np.frombuffer(data, np.uint8)].reshape(-1)


def _minifloat_table(exponent_bits: int, mantissa_bits: int, has_infinity: bool) -> Values:
    """Value of every byte of an 8-bit float with a sign bit and the usual bias."""
    codes = np.arange(256)
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = (codes >> mantissa_bits) & (2**exponent_bits - 1)
    mantissa = (codes & (2**mantissa_bits - 1)) / 2**mantissa_bits
    magnitude = np.where(
        exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - float(bias))
    )
    top = exponent == 2**exponent_bits - 1
    if has_infinity:
        magnitude = np.where(top, np.where(mantissa == 0, np.inf, np.nan), magnitude)
    else:
        magnitude = np.where(codes & 0x7F == 0x7F, np.nan, magnitude)
    return np.where(codes & 0x80, -magnitude, magnitude).astype(np.float32)


def _exponent_table() -> Values:
    """E8M0: a power of two a byte, 255 is NaN."""
    table = 2.0 ** (np.arange(256, dtype=np.float64) - 127)
    table[255] = np.nan
    return table.astype(np.float32)


_BYTE_TABLES = {
    "F8_E4M3": _minifloat_table(4, 3, has_infinity=False),
    "F8_E5M2": _minifloat_table(5, 2, has_infinity=True),
    "F8_E8M0": _exponent_table(),
}
_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)
_E2M1_SIGNED = np.concatenate([_E2M1, -_E2M1])
_E2M1_PAIRS = np.stack(
    [_E2M1_SIGNED[np.arange(256) & 0xF], _E2M1_SIGNED[np.arange(256) >> 4]], axis=1
)  # [256, 2]
