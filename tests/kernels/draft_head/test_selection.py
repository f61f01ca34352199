"""Chosen rows of a packed head are the rows of the unpacked one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from draftproof.kernels.draft_head.selection import as_int8, select_rows
from draftproof.kernels.packed_weights.formats import PackedMatrix, WeightFormat
from draftproof.kernels.packed_weights.packing import (
    pack_dense,
    pack_fp8,
    pack_fp8_blocks,
    pack_int8,
    pack_nvfp4,
)
from draftproof.kernels.packed_weights.unpacking import unpack

ROWS, COLUMNS = 90, 160
CHOSEN = torch.tensor([0, 3, 17, 18, 31, 64, 88, 89, *range(40, 55)], dtype=torch.int32)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def nvfp4() -> PackedMatrix:
    generator = torch.Generator().manual_seed(4)
    codes = torch.randint(0, 256, (ROWS, COLUMNS // 2), dtype=torch.uint8, generator=generator)
    scales = random(ROWS, COLUMNS // 16).abs().to(torch.float8_e4m3fn)
    return pack_nvfp4(codes, scales, torch.tensor(0.01))


MAKERS: dict[str, Callable[[], PackedMatrix]] = {
    "bf16": lambda: pack_dense(random(ROWS, COLUMNS), random(ROWS)),
    "fp8": lambda: pack_fp8(random(ROWS, COLUMNS).to(torch.float8_e4m3fn), random(ROWS).abs()),
    "fp8-blocks": lambda: pack_fp8_blocks(
        random(ROWS, COLUMNS).to(torch.float8_e4m3fn), torch.tensor([[0.5, 2.0]])
    ),
    "int8": lambda: pack_int8(random(ROWS, COLUMNS)),
    "nvfp4": nvfp4,
}


@pytest.mark.parametrize("name", MAKERS)
def test_rows_keep_their_numbers(name: str) -> None:
    matrix = MAKERS[name]()
    chosen = select_rows(matrix, CHOSEN)
    assert (chosen.rows, chosen.columns) == (len(CHOSEN), COLUMNS)
    assert chosen.blocks.shape[0] == 2
    assert chosen.blocks.is_contiguous()
    expected = unpack(matrix, torch.float32)[CHOSEN.long()]
    assert torch.equal(unpack(chosen, torch.float32), expected)
    if matrix.bias is not None:
        assert chosen.bias is not None
        assert torch.equal(chosen.bias[: len(CHOSEN)], matrix.bias[CHOSEN.long()])


def test_a_wide_head_takes_half_the_bytes_as_int8() -> None:
    matrix = pack_dense(random(ROWS, COLUMNS))
    small = as_int8(matrix)
    assert small.format is WeightFormat.INT8
    assert small.blocks.numel() <= 0.61 * matrix.blocks.numel()
    error = unpack(small, torch.float32) - unpack(matrix, torch.float32)
    assert error.abs().max() < 0.02
    assert as_int8(small) is small
