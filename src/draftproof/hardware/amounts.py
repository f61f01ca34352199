"""Amounts with units, as people type them: "96GB", "143771 MiB", "1.8TB/s"."""

from __future__ import annotations

import re

from draftproof.errors import UsageError

_UNITS = {
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
    "tib": 2.0**40,
}
_AMOUNT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z]{1,3})\s*", re.IGNORECASE)
_PER_SECOND = re.compile(r"\s*(?:/\s*s(?:ec)?|ps)\s*$", re.IGNORECASE)
LARGEST = 1e18


def parse_bytes(text: str, option: str) -> float:
    """Bytes: a number and B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024).

    Args:
        text: "96GB".
        option: the option that it stands after, for the message.

    Raises:
        UsageError: no number with a unit, or not above zero.
    """
    return _parse(text, text, option, "96GB or 97887MiB")


def parse_rate(text: str, option: str) -> float:
    """Bytes per second: as `parse_bytes`, with "/s" or without.

    Raises:
        UsageError: as `parse_bytes`.
    """
    return _parse(_PER_SECOND.sub("", text), text, option, "1.8TB/s")


def _parse(amount: str, text: str, option: str, example: str) -> float:
    match = _AMOUNT.fullmatch(amount)
    unit = _UNITS.get(match[2].lower()) if match else None
    value = float(match[1]) * unit if match and unit else 0.0
    if not 0 < value < LARGEST:
        raise UsageError(f"{option} {text[:40]!r} is no amount with a unit", f"Write it like {example}.")
    return value
