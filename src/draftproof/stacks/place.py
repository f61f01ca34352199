"""A line in a stack's source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Place:
    """Where something stands.

    Attributes:
        file: path relative to the root of the stack's tree: "sglang/srt/models/qwen3_5_mtp.py".
        line: from 1.
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
