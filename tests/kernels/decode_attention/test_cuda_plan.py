"""What the CUDA kernels take, and who shares a context."""

from __future__ import annotations

import pytest
import torch

from draftproof.kernels.decode_attention import cuda
from tests.kernels.decode_attention.cases import Shape, make_case


@pytest.mark.parametrize(
    ("batch", "longest", "cluster", "ranks"),
    [(1, 1024, 8, 8), (1, 32_768, 0, 66), (4, 32_768, 8, 8), (16, 1024, 2, 2), (64, 1024, 1, 1)],
)
def test_plans_of_the_35b(batch: int, longest: int, cluster: int, ranks: int) -> None:
    plan = cuda.plan_for(batch, 2, longest, 32)
    assert (plan.cluster, plan.ranks) == (cluster, ranks)


@pytest.mark.parametrize("tile", [16, 32, 64])
@pytest.mark.parametrize("batch", [1, 64])
def test_every_plan_fits_into_the_shared_memory_of_a_multiprocessor(tile: int, batch: int) -> None:
    plan = cuda.plan_for(batch, 2, 32_768, tile)
    assert cuda.shared_bytes(tile, 8, plan.stages) <= 227 * 1024


def test_a_cpu_is_refused_with_the_reason() -> None:
    case = make_case(Shape(head_dim=256), [3], 1)
    reason = cuda.supports(case.projected, case.parameters, case.keys, case.values, case.geometry)
    assert reason == "thread block clusters need compute capability 9.0"
    assert case.projected.dtype is torch.bfloat16
