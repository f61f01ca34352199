"""The GPU kernels against the definition, at the widths of real models: a few, and the whole grid."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from draftproof.kernels.decode_attention import cuda, reference
from draftproof.kernels.decode_attention import triton as portable
from draftproof.kernels.decode_attention.parameters import Past
from tests.kernels.decode_attention.cases import Case, Shape, make_case
from tests.kernels.decode_attention.running import TOLERANCE, run

SHAPES = {
    "35B": Shape(16, 2, 256, 64),
    "397B": Shape(32, 2, 256, 64),
    "27B": Shape(24, 4, 256, 64),
    "tiny": Shape(4, 2, 64, 16),
    "ungated, width 128": Shape(8, 4, 128, 128, gated=False),
}
WIDE = {name: shape for name, shape in SHAPES.items() if shape.head_dim == 256}


def check_portable(shape: Shape, rows: int, splits: int) -> None:
    past = Past.SETTLED if splits == 17 else Past.MOVING
    lengths = [0, 1, 63, 64, 65, 1000, 2049]
    case, again = (make_case(shape, lengths, rows, padded=1, device="cuda") for _ in range(2))
    expected = run(reference, again, splits)
    live = len(lengths) * rows
    torch.testing.assert_close(run(portable, case, splits, past=past)[:live], expected[:live], **TOLERANCE)
    compare_pools(case, again)


def check_clusters_or_parts(shape: Shape, rows: int, batch: int, longest: int) -> None:
    """With room for long contexts, few sequences are shared by parts; many always by clusters."""
    lengths = ([1000, 0, 1, 63, 64, 65, 2049, 500] * 8)[:batch]
    past = Past.SETTLED if batch in (1, 16) else Past.MOVING
    room = longest or max(lengths) + rows
    case, again = (make_case(shape, lengths, rows, room=room, device="cuda") for _ in range(2))
    expected = run(reference, again, 1)
    assert cuda.supports(case.projected, case.parameters, case.keys, case.values, case.geometry) is None
    torch.testing.assert_close(run(cuda, case, 66, past=past), expected, **TOLERANCE)
    compare_pools(case, again)


def check_selected(kernels: ModuleType, shape: Shape, splits: int, copies: int) -> None:
    case, again = (make_case(shape, [7, 0, 1500, 33] * copies, 4, device="cuda") for _ in range(2))
    index = torch.tensor([3, 0, 2, 1] * copies, dtype=torch.int32, device="cuda")
    expected = run(reference, again, splits, index)
    torch.testing.assert_close(run(kernels, case, splits, index), expected, **TOLERANCE)
    compare_pools(case, again)


def compare_pools(case: Case, again: Case) -> None:
    """Keys and values of all pages but the scrap page."""
    torch.testing.assert_close(case.keys[1:], again.keys[1:], equal_nan=True, atol=8e-3, rtol=8e-3)
    assert torch.equal(case.values[1:].nan_to_num(), again.values[1:].nan_to_num())


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "rows", "splits"), [("35B", 4, 17), ("35B", 1, 1), ("tiny", 3, 4)])
def test_the_portable_kernels(shape: str, rows: int, splits: int) -> None:
    check_portable(SHAPES[shape], rows, splits)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "rows", "batch", "longest"),
    [("35B", 4, 1, 0), ("35B", 4, 1, 9000), ("35B", 1, 16, 0), ("35B", 4, 64, 0), ("397B", 7, 8, 0)],
)
def test_clusters_or_parts(shape: str, rows: int, batch: int, longest: int) -> None:
    check_clusters_or_parts(SHAPES[shape], rows, batch, longest)


@pytest.mark.gpu
@pytest.mark.parametrize("kernels", [portable, cuda], ids=["portable", "cuda"])
def test_the_selected_row(kernels: ModuleType) -> None:
    check_selected(kernels, SHAPES["35B"], 9, 1)


@pytest.mark.gpu_long
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize("splits", [1, 2, 17, 67])
def test_the_portable_kernels_at_every_shape(shape: Shape, rows: int, splits: int) -> None:
    check_portable(shape, rows, splits)


@pytest.mark.gpu_long
@pytest.mark.parametrize("shape", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize(("batch", "longest"), [(1, 0), (4, 0), (16, 0), (64, 0), (1, 9000), (2, 9000)])
def test_clusters_or_parts_at_every_shape(shape: Shape, rows: int, batch: int, longest: int) -> None:
    check_clusters_or_parts(shape, rows, batch, longest)


@pytest.mark.gpu_long
@pytest.mark.parametrize("shape", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("copies", [1, 16])
@pytest.mark.parametrize("kernels", [portable, cuda], ids=["portable", "cuda"])
def test_the_selected_row_at_every_shape(kernels: ModuleType, shape: Shape, copies: int) -> None:
    check_selected(kernels, shape, 9, copies)


@pytest.mark.gpu
def test_the_same_bits_every_time() -> None:
    for kernels in (portable, cuda):
        first, second, third = (
            run(kernels, make_case(SHAPES["35B"], [1000, 5], 4, device="cuda"), splits=17) for _ in range(3)
        )
        assert torch.equal(first, second)
        assert torch.equal(first, third)


@pytest.mark.gpu
def test_padded_sequences_harm_nobody() -> None:
    alone, padded = (make_case(SHAPES["35B"], [1000], 4, padded=count, device="cuda") for count in (0, 3))
    padded.projected[:4] = alone.projected
    for kernels in (portable, cuda):
        first, second = run(kernels, alone, 9), run(kernels, padded, 9)
        torch.testing.assert_close(first, second[:4], **TOLERANCE)
        assert not second.isnan().any()
