"""What the CUDA kernels of many rows take, and how they are spread; without a GPU."""

from __future__ import annotations

import pytest
import torch

from draftproof.kernels.experts_step.cuda_many_rows import (
    SHARED_MEMORY_BYTES,
    first_of,
    second_of,
    shared_bytes,
    unsupported_shape,
)
from draftproof.kernels.packed_weights.formats import BLOCK_BYTES, CHUNK_COLUMNS, PackedExperts, WeightFormat


def experts_of(kept_as: WeightFormat, hidden: int, intermediate: int) -> PackedExperts:
    def blocks(tiles: int, columns: int) -> torch.Tensor:
        chunks = -(-columns // CHUNK_COLUMNS[kept_as])
        return torch.empty(1, tiles, chunks, BLOCK_BYTES[kept_as], dtype=torch.uint8, device="meta")

    gate_up, down = blocks(-(-intermediate // 8), hidden), blocks(-(-hidden // 16), intermediate)
    return PackedExperts(kept_as, hidden, intermediate, gate_up, down)


@pytest.mark.parametrize("kept_as", [WeightFormat.BF16, WeightFormat.FP8, WeightFormat.NVFP4])
@pytest.mark.parametrize(("hidden", "intermediate"), [(2048, 512), (3072, 1024), (4096, 1024), (256, 80)])
def test_released_shapes_have_plans_that_divide_them(
    kept_as: WeightFormat, hidden: int, intermediate: int
) -> None:
    experts = experts_of(kept_as, hidden, intermediate)
    assert unsupported_shape(experts, None) is None
    for product in (first_of(experts), second_of(experts)):
        plan = product.plan()
        assert plan is not None
        assert product.blocks.shape[2] % (plan.group * plan.stage_blocks) == 0
        assert plan.resident * shared_bytes(plan, product) < SHARED_MEMORY_BYTES


def test_int8_experts_are_refused_by_name() -> None:
    assert unsupported_shape(experts_of(WeightFormat.INT8, 256, 128), None) == "experts in int8"


def test_odd_widths_are_refused() -> None:
    reason = unsupported_shape(experts_of(WeightFormat.BF16, 40, 32), None)
    assert reason == "hidden width 40, intermediate width 32"
