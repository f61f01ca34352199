"""What a process may have: the machine's memory, or its container's."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.hardware.host_memory import host_memory_bytes


def limited(folder: Path, text: str) -> int:
    file = folder / "memory.max"
    file.write_text(text)
    return host_memory_bytes(file)


def test_a_container_has_what_it_is_given(tmp_path: Path) -> None:
    assert limited(tmp_path, "1048576\n") == 1 << 20


@pytest.mark.parametrize("text", ["max\n", "", str(1 << 80)])
def test_without_a_limit_it_is_the_machines(tmp_path: Path, text: str) -> None:
    whole = host_memory_bytes(tmp_path / "nothing")
    assert whole > 1 << 28
    assert limited(tmp_path, text) == whole
