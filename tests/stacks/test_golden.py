"""Every real version still does with every release what was reviewed."""

from __future__ import annotations

import pytest

from tests.stacks.golden import golden_file, rendered
from tests.support.real_stacks import REAL_STACKS, real_stack


@pytest.mark.parametrize(("name", "version"), REAL_STACKS)
def test_verdicts_are_the_reviewed_ones(name: str, version: str) -> None:
    expected = golden_file(name, version).read_text()
    actual = rendered(real_stack(name, version))
    assert actual == expected, f"read the difference, then: python -m tests.stacks.golden {name}-{version}"
