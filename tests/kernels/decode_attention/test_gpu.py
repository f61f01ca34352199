"""The Triton kernels against the definition on a GPU, at the widths of real models."""

from __future__ import annotations

import pytest
import torch

from draftproof.kernels.decode_attention import reference
from draftproof.kernels.decode_attention import triton as kernels
from draftproof.kernels.decode_attention.parameters import Past
from tests.kernels.decode_attention.cases import Shape, make_case
from tests.kernels.decode_attention.running import TOLERANCE, run

pytestmark = pytest.mark.gpu

SHAPES = {
    "35B": Shape(16, 2, 256, 64),
    "397B": Shape(32, 2, 256, 64),
    "27B": Shape(24, 4, 256, 64),
    "tiny": Shape(4, 2, 64, 16),
    "ungated, width 128": Shape(8, 4, 128, 128, gated=False),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize("splits", [1, 2, 17, 67])
def test_it_is_the_definition(shape: Shape, rows: int, splits: int) -> None:
    past = Past.SETTLED if splits == 17 else Past.MOVING
    lengths = [0, 1, 63, 64, 65, 1000, 2049]
    case, again = (make_case(shape, lengths, rows, padded=1, device="cuda") for _ in range(2))
    expected = run(reference, again, splits)
    live = len(lengths) * rows
    torch.testing.assert_close(run(kernels, case, splits, past=past)[:live], expected[:live], **TOLERANCE)
    torch.testing.assert_close(case.keys[1:], again.keys[1:], equal_nan=True, atol=8e-3, rtol=8e-3)
    assert torch.equal(case.values[1:].nan_to_num(), again.values[1:].nan_to_num())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("splits", [1, 9])
def test_the_selected_row(shape: Shape, splits: int) -> None:
    case, again = (make_case(shape, [7, 0, 1500, 33], 4, device="cuda") for _ in range(2))
    index = torch.tensor([3, 0, 2, 1], dtype=torch.int32, device="cuda")
    expected = run(reference, again, splits, index)
    torch.testing.assert_close(run(kernels, case, splits, index), expected, **TOLERANCE)
    torch.testing.assert_close(case.keys[1:], again.keys[1:], equal_nan=True, atol=8e-3, rtol=8e-3)


def test_the_same_bits_every_time() -> None:
    outputs = [
        run(kernels, make_case(SHAPES["35B"], [1000, 5], 4, device="cuda"), splits=17) for _ in range(3)
    ]
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
