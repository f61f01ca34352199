"""A slice of a real shape on a GPU: kernels agree with their definitions, steps run, kernels are counted."""

from __future__ import annotations

import pytest

from draftproof.bench.place import Gpu
from draftproof.bench.precisions import LAYOUTS
from draftproof.bench.request import BenchRequest
from draftproof.bench.run import run_bench

pytestmark = pytest.mark.gpu
SLICE = {"layers": 4, "context": 64, "steps": 4, "repeats": 1, "batches": (1, 3), "draft_tokens": (0, 2)}


@pytest.mark.parametrize("layout", [layout.name for layout in LAYOUTS])
def test_every_precision_steps(layout: str) -> None:
    wanted = BenchRequest("qwen3.5-35b-a3b", layout, accept_length=2.5, **SLICE)  # type: ignore[arg-type]
    result = run_bench(wanted, Gpu(), lambda line: None)
    for each in result.cells:
        assert each.accept_length == pytest.approx(each.cell.simulated or 1.0, abs=0.5)
        assert each.tokens_per_second > 0


def test_the_kernels_of_a_step_add_up_to_about_the_step() -> None:
    wanted = BenchRequest("qwen3.5-35b-a3b", kernels=True, **SLICE)  # type: ignore[arg-type]
    for _, table in run_bench(wanted, Gpu(), lambda line: None).kernel_tables:
        assert 0.5 < table.kernel_microseconds / table.step_microseconds < 2.0


def test_a_dense_shape_steps_too() -> None:
    wanted = BenchRequest("qwen3.5-27b", "nvfp4-3.6", **SLICE)  # type: ignore[arg-type]
    assert run_bench(wanted, Gpu(), lambda line: None).layer_microseconds is None
