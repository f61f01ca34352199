"""Plans of the CUDA kernels: they cover all inputs and fit a multiprocessor, for every shape that occurs."""

from __future__ import annotations

import pytest
import torch

from draftproof.kernels.packed_linear import cuda
from draftproof.kernels.packed_weights.formats import PackedMatrix, WeightFormat

SHARED_OF_A_MULTIPROCESSOR = 228 * 1024
SHARED_OF_A_BLOCK = 227 * 1024
SHAPES = [
    (12352, 2048), (9216, 2048), (257, 2048), (2048, 4096), (2048, 512), (32768, 2048), (248320, 2048),
    (20608, 3072), (17408, 3072), (3072, 8192), (20608, 4096), (4096, 8192), (16480, 5120), (14336, 5120),
    (5120, 6144), (34816, 5120), (5120, 17408), (160, 80), (256, 80), (1024, 256), (4096, 256), (256, 512),
]  # fmt: skip


def matrix_of(kept_as: WeightFormat, shape: tuple[int, int]) -> PackedMatrix:
    """Only its shape matters."""
    return PackedMatrix(kept_as, *shape, torch.empty(-(-shape[0] // 16), 1, 1))


@pytest.mark.parametrize("rows", [1, 4, 8, 16])
@pytest.mark.parametrize("kept_as", list(WeightFormat))
@pytest.mark.parametrize("shape", SHAPES)
def test_few_rows(shape: tuple[int, int], kept_as: WeightFormat, rows: int) -> None:
    matrix = matrix_of(kept_as, shape)
    plan = cuda.choose_plan(matrix, rows)
    units = -(-shape[1] // 128)
    assert 1 <= plan.warps <= min(units, 16)
    assert plan.stages >= 1
    assert plan.step == 1 or not plan.group
    static = plan.warps * 4 * 16 + 1024 + plan.warps * (plan.stages + 1) * 8
    whole = cuda.shared_bytes(plan, matrix, rows, has_norm=True) + static
    assert whole <= SHARED_OF_A_BLOCK
    assert plan.blocks * (whole + 1024) <= SHARED_OF_A_MULTIPROCESSOR


@pytest.mark.parametrize("units", range(1, 65))
def test_warps_share_units(units: int) -> None:
    plan = cuda.choose_plan(matrix_of(WeightFormat.BF16, (4096, units * 128)), 4)
    assert -(-units // plan.warps) <= cuda.UNITS_OF_A_WARP + 4
