"""Every real version still chooses the kernels that were reviewed."""

from __future__ import annotations

import pytest

from tests.stacks.sglang.backend.kernel_tables import golden_path, rendered
from tests.support.sglang_kernels import VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_kernels_are_the_reviewed_ones(version: str) -> None:
    expected = golden_path(version).read_text(encoding="utf-8")
    remedy = "read the difference; python -m tests.stacks.sglang.backend.kernel_tables"
    assert rendered(version) == expected, remedy
