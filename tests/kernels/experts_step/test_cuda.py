"""The experts' CUDA kernel: what it is for, and on a GPU its results against the definition."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step import cuda, reference
from draftproof.kernels.experts_step.operands import ExpertsScratch, SharedExpert, experts_scratch
from draftproof.kernels.packed_weights.formats import WeightFormat
from tests.kernels.experts_step.layers import Maker, assert_same_sum

HIDDEN, INTERMEDIATE, EXPERTS, PER_TOKEN = 2048, 512, 12, 4


class Case:
    """One layer and one step of it."""

    def __init__(
        self, kind: str, shared: str | None, rows: int, hidden: int = HIDDEN, width: int = INTERMEDIATE
    ) -> None:
        # As many as the rows may choose: with fewer there may be too few tiles for every multiprocessor.
        spec = MoeSpec(max(EXPERTS, rows * PER_TOKEN), PER_TOKEN, width, width)
        maker = Maker(spec, hidden, torch.Generator().manual_seed(rows), "cuda")
        self.experts, self.norm = maker.experts(kind), maker.norm()
        self.shared: SharedExpert | None = None if shared is None else maker.shared(shared)
        self.residual, self.routing = maker.residual(rows), maker.routing(rows)
        self.scratch: ExpertsScratch = experts_scratch(rows, self.routing, self.experts, self.shared)
        # Words of other launches, with bfloat16 NaNs.
        self.scratch.exchange.fill_(-1)

    def expected(self) -> Tensor:
        after = self.residual.clone()
        reference.experts_step(after, *self._operands())
        return after

    def actual(self) -> Tensor:
        after = self.residual.clone()
        assert cuda.supports(after, *self._operands()) is None
        torch.cuda.synchronize()  # the rows are read before the kernel ahead has ended
        cuda.experts_step(after, *self._operands())
        return after

    def _operands(self):  # type: ignore[no-untyped-def]
        return self.norm, self.experts, self.shared, self.routing, self.scratch


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8])
@pytest.mark.parametrize("kind", ["bf16", "fp8", "fp8-blocks", "nvfp4"])
def test_every_format_and_number_of_rows(kind: str, rows: int) -> None:
    case = Case(kind, kind, rows)
    assert_same_sum(case.residual, case.expected(), case.actual())


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [2, 6])
@pytest.mark.parametrize("shared", [None, "bf16", "fp8", "fp8-blocks"])
def test_the_shared_expert_beside_nvfp4_ones(shared: str | None, rows: int) -> None:
    case = Case("nvfp4", shared, rows)
    assert_same_sum(case.residual, case.expected(), case.actual())


@pytest.mark.gpu
@pytest.mark.parametrize(("hidden", "width"), [(3072, 1024), (4096, 1024)])
@pytest.mark.parametrize("kind", ["bf16", "fp8-blocks", "nvfp4"])
def test_the_widths_of_larger_models(kind: str, hidden: int, width: int) -> None:
    case = Case(kind, kind, 4, hidden, width)
    assert_same_sum(case.residual, case.expected(), case.actual())


@pytest.mark.gpu
def test_launches_repeat_bit_for_bit_also_from_a_graph() -> None:
    case = Case("nvfp4", "nvfp4", 4)
    first = case.actual()
    after = case.residual.clone()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cuda.experts_step(after, *case._operands())
    for _ in range(20):
        after.copy_(case.residual)
        graph.replay()
        assert torch.equal(after, first)


def small(kind: str, shared: str | None, rows: int = 4):  # type: ignore[no-untyped-def]
    """Operands of `unsupported_shape` at a real hidden and intermediate width, with one tiny expert."""
    maker = Maker(MoeSpec(1, 1, INTERMEDIATE, INTERMEDIATE), 512, torch.Generator().manual_seed(0), "cpu")
    experts = replace(maker.experts(kind), hidden=HIDDEN)
    return rows, experts, None if shared is None else maker.shared(shared), maker.routing(rows)


@pytest.mark.parametrize(
    ("operands", "reason"),
    [
        (small("nvfp4", "nvfp4"), None),
        (small("nvfp4", "fp8"), None),
        (small("bf16", None), None),
        (small("fp8", "bf16"), "shared expert in bf16 beside fp8 experts"),
        (small("bf16", "bf16", rows=9), "9 rows, at most 8"),
    ],
)
def test_what_it_is_for(operands, reason: str | None) -> None:  # type: ignore[no-untyped-def]
    assert cuda.unsupported_shape(*operands) == reason


def test_eight_rows_of_wide_experts_do_not_fit() -> None:
    rows, experts, _, routing = small("nvfp4", None, rows=8)
    wide = replace(experts, hidden=4096, intermediate=1024)
    reason = "no shared memory for 8 rows of width 4096 and 1024"
    assert cuda.unsupported_shape(rows, wide, None, routing) == reason
    assert cuda.unsupported_shape(4, wide, None, small("nvfp4", None)[3]) is None


def test_other_widths_and_formats_are_named() -> None:
    rows, experts, _, routing = small("bf16", None)
    narrow = replace(experts, intermediate=768)
    assert cuda.unsupported_shape(rows, narrow, None, routing) == "intermediate width 768"
    odd = replace(experts, hidden=2560)
    assert cuda.unsupported_shape(rows, odd, None, routing) is None
    assert cuda.unsupported_shape(rows, replace(experts, hidden=2080), None, routing) == "hidden width 2080"
    whole = replace(experts, format=WeightFormat.INT8)
    assert cuda.unsupported_shape(rows, whole, None, routing) == "int8 experts"
