"""Pages are as many as fit beside weights, slots and kept prompts, and enough for the longest sequence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.bench.precisions import layout_named
from draftproof.bench.shapes import load_shape
from draftproof.engine.memory_budget import plan_of, sizes_that_fit
from draftproof.hardware.weights import weigh_precisions
from draftproof.runtime.state_store import StateSizes

SPEC = load_shape("qwen3.5-35b-a3b")
WEIGHTS = weigh_precisions(SPEC, layout_named("nvfp4").groups)
PER_SEQUENCE = 2049
WANTED = StateSizes(8, 8 * PER_SEQUENCE + 1, 16, 32_776, 4, snapshots=32)
TOTAL = plan_of(SPEC, WEIGHTS, WANTED).total


def test_all_pages_when_they_fit() -> None:
    assert sizes_that_fit(SPEC, WEIGHTS, WANTED, int(TOTAL) + 1) == WANTED


@pytest.mark.parametrize("share", [0.999, 0.97, 0.9])
def test_as_many_as_fit(share: float) -> None:
    free = int(share * TOTAL)
    sizes = sizes_that_fit(SPEC, WEIGHTS, WANTED, free)
    assert sizes == replace(WANTED, pages=sizes.pages)
    assert plan_of(SPEC, WEIGHTS, sizes).total <= free
    assert plan_of(SPEC, WEIGHTS, replace(sizes, pages=sizes.pages + 2)).total > free


def test_never_fewer_than_one_sequence_at_its_longest_needs() -> None:
    sizes = sizes_that_fit(SPEC, WEIGHTS, WANTED, 1)
    assert sizes.pages == PER_SEQUENCE + 1
    assert plan_of(SPEC, WEIGHTS, sizes).total > 1


def test_kept_prompts_take_a_state_each() -> None:
    without = plan_of(SPEC, WEIGHTS, replace(WANTED, snapshots=0))
    # 63 MB of float32 state.
    assert TOTAL - without.total == pytest.approx(32 * 64e6, rel=0.05)
