"""The proposed commands still do with every release what was reviewed."""

from __future__ import annotations

from tests.stacks.vllm.golden_launch import FILE, rendered


def test_proposed_commands_are_the_reviewed_ones() -> None:
    assert rendered() == FILE.read_text(), "read the difference: python -m tests.stacks.vllm.golden_launch"
