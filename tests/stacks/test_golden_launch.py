"""The reviewed tables of link 4 are what the rules find."""

from __future__ import annotations

import pytest

from tests.stacks.golden_launch import launch_file, launch_table
from tests.support.real_stacks import REAL_STACKS


@pytest.mark.parametrize(("name", "version"), REAL_STACKS)
def test_the_table_is_the_reviewed_one(name: str, version: str) -> None:
    assert launch_table(name, version) == launch_file(name, version).read_text(), (
        f"look at the difference, then: python -m tests.stacks.golden_launch {name}-{version}"
    )
