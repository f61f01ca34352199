"""Experts of many rows on a GPU, by CUDA and by Triton, against the definition."""

from __future__ import annotations

import pytest
import torch

from draftproof.kernels.experts_step import cuda_many_rows
from draftproof.kernels.experts_step import triton as portable
from draftproof.kernels.routing.routing import ManyRowsRouting
from tests.kernels.experts_step.cases import FORMATS, Shape, assert_same_sum, before_and_after

pytestmark = pytest.mark.gpu
SHAPE = Shape(experts=7, per_token=3, hidden=1024, intermediate=256)
GPU = torch.device("cuda")


def cuda_step(residual, norm, experts, shared, routing, scratch) -> None:  # type: ignore[no-untyped-def]
    assert isinstance(routing, ManyRowsRouting)
    assert cuda_many_rows.unsupported(residual, experts, shared) is None
    cuda_many_rows.add_experts(residual, residual, norm, experts, shared, routing, scratch)


@pytest.mark.parametrize("step", [cuda_step, portable.experts_step], ids=["cuda", "triton"])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("rows", [40])
def test_same_format(step: object, kind: str, rows: int) -> None:
    assert_same_sum(*before_and_after(step, SHAPE, (kind, kind), rows, GPU))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bf16", "nvfp4"])
def test_many_experts_with_few_pairs_each(kind: str) -> None:
    shape = Shape(experts=160, per_token=2, hidden=512, intermediate=128)
    assert_same_sum(*before_and_after(cuda_step, shape, (kind, kind), 60, GPU))


def test_another_format_of_the_shared_expert() -> None:
    assert_same_sum(*before_and_after(cuda_step, SHAPE, ("nvfp4", "bf16"), 20, GPU))


def test_odd_widths() -> None:
    shape = Shape(experts=5, per_token=2, hidden=256, intermediate=80)
    assert_same_sum(*before_and_after(cuda_step, shape, ("bf16", None), 33, GPU))
