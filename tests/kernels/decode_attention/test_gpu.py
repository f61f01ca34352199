"""The GPU kernels against the definition, at the widths of real models."""

from __future__ import annotations

import pytest
import torch

from draftproof.kernels.decode_attention import cuda, reference
from draftproof.kernels.decode_attention import triton as portable
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


WIDE = {name: shape for name, shape in SHAPES.items() if shape.head_dim == 256}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize("splits", [1, 2, 17, 67])
def test_it_is_the_definition(shape: Shape, rows: int, splits: int) -> None:
    past = Past.SETTLED if splits == 17 else Past.MOVING
    lengths = [0, 1, 63, 64, 65, 1000, 2049]
    case, again = (make_case(shape, lengths, rows, padded=1, device="cuda") for _ in range(2))
    expected = run(reference, again, splits)
    live = len(lengths) * rows
    torch.testing.assert_close(run(portable, case, splits, past=past)[:live], expected[:live], **TOLERANCE)
    torch.testing.assert_close(case.keys[1:], again.keys[1:], equal_nan=True, atol=8e-3, rtol=8e-3)
    assert torch.equal(case.values[1:].nan_to_num(), again.values[1:].nan_to_num())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("splits", [1, 9])
def test_the_selected_row(shape: Shape, splits: int) -> None:
    case, again = (make_case(shape, [7, 0, 1500, 33], 4, device="cuda") for _ in range(2))
    index = torch.tensor([3, 0, 2, 1], dtype=torch.int32, device="cuda")
    expected = run(reference, again, splits, index)
    torch.testing.assert_close(run(portable, case, splits, index), expected, **TOLERANCE)
    torch.testing.assert_close(case.keys[1:], again.keys[1:], equal_nan=True, atol=8e-3, rtol=8e-3)


def test_the_same_bits_every_time() -> None:
    for kernels in (portable, cuda):
        first, second, third = (
            run(kernels, make_case(SHAPES["35B"], [1000, 5], 4, device="cuda"), splits=17) for _ in range(3)
        )
        assert torch.equal(first, second)
        assert torch.equal(first, third)


@pytest.mark.parametrize("shape", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize(("batch", "longest"), [(1, 0), (4, 0), (16, 0), (64, 0), (1, 9000), (2, 9000)])
def test_clusters_or_parts(shape: Shape, rows: int, batch: int, longest: int) -> None:
    """With room for long contexts, few sequences are shared by parts; many always by clusters."""
    lengths = ([1000, 0, 1, 63, 64, 65, 2049, 500] * 8)[:batch]
    past = Past.SETTLED if batch in (1, 16) else Past.MOVING
    room = longest or max(lengths) + rows
    case, again = (make_case(shape, lengths, rows, room=room, device="cuda") for _ in range(2))
    expected = run(reference, again, 1)
    assert cuda.supports(case.projected, case.parameters, case.keys, case.values, case.geometry) is None
    torch.testing.assert_close(run(cuda, case, 66, past=past), expected, **TOLERANCE)
    torch.testing.assert_close(case.keys, again.keys, equal_nan=True, atol=8e-3, rtol=8e-3)
    assert torch.equal(case.values.nan_to_num(), again.values.nan_to_num())


@pytest.mark.parametrize("shape", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("copies", [1, 16])
def test_clusters_or_parts_for_the_selected_row(shape: Shape, copies: int) -> None:
    case, again = (make_case(shape, [7, 0, 1500, 33] * copies, 4, device="cuda") for _ in range(2))
    index = torch.tensor([3, 0, 2, 1] * copies, dtype=torch.int32, device="cuda")
    expected = run(reference, again, 1, index)
    torch.testing.assert_close(run(cuda, case, 66, index), expected, **TOLERANCE)
    torch.testing.assert_close(case.keys, again.keys, equal_nan=True, atol=8e-3, rtol=8e-3)


def test_padded_sequences_harm_nobody() -> None:
    alone, padded = (make_case(SHAPES["35B"], [1000], 4, padded=count, device="cuda") for count in (0, 3))
    padded.projected[:4] = alone.projected
    for kernels in (portable, cuda):
        first, second = run(kernels, alone, 9), run(kernels, padded, 9)
        torch.testing.assert_close(first, second[:4], **TOLERANCE)
        assert not second.isnan().any()
