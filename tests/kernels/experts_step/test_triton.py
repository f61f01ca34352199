"""The experts' Triton kernels against the definition, in every format, for few and many rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step import reference
from draftproof.kernels.experts_step import triton as portable
from draftproof.kernels.experts_step.operands import SharedExpert, experts_scratch
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.formats import PackedExperts, PackedMatrix
from draftproof.kernels.packed_weights.packing import (
    pack_dense,
    pack_experts,
    pack_fp8,
    pack_fp8_blocks,
    pack_nvfp4,
    pair_gate_up,
)
from draftproof.kernels.routing.reference import list_distinct, sort_pairs
from draftproof.kernels.routing.routing import FewRowsRouting, Routing, allocate_routing

EXPERTS, PER_TOKEN, HIDDEN, INTERMEDIATE = 3, 2, 144, 48
FORMATS = ("bf16", "fp8", "fp8-blocks", "nvfp4")


def matrix(kind: str, rows: int, columns: int, generator: torch.Generator, *leading: int) -> PackedMatrix:
    """A random packed matrix whose products have about the size of its inputs."""
    values = torch.randn(*leading, rows, columns, generator=generator)
    size = columns**-0.5
    if kind == "bf16":
        return pack_dense(values * size)
    spread = torch.rand(*leading, rows, generator=generator) + 0.5
    if kind == "fp8":
        return pack_fp8(values.to(torch.float8_e4m3fn), spread * size)
    if kind == "fp8-blocks":
        blocks = torch.rand(*leading, -(-rows // 128), -(-columns // 128), generator=generator) + 0.5
        return pack_fp8_blocks(values.to(torch.float8_e4m3fn), blocks * size)
    codes = torch.randint(0, 256, (*leading, rows, columns // 2), generator=generator, dtype=torch.uint8)
    scales = torch.rand(*leading, rows, columns // 16, generator=generator) + 0.1
    scales[..., 0, 0] = 0
    return pack_nvfp4(codes, scales.to(torch.float8_e4m3fn), spread[..., 0] * size)


def experts_in(kind: str, generator: torch.Generator) -> PackedExperts:
    shapes = ((INTERMEDIATE, HIDDEN), (INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE))
    gate, up, down = (matrix(kind, *shape, generator, EXPERTS) for shape in shapes)
    return pack_experts(gate, up, down)


def shared_in(kind: str, generator: torch.Generator) -> SharedExpert:
    gate, up = (matrix(kind, INTERMEDIATE, HIDDEN, generator) for _ in range(2))
    return SharedExpert(pair_gate_up(gate, up), matrix(kind, HIDDEN, INTERMEDIATE, generator))


def routing_of(rows: int, generator: torch.Generator) -> Routing:
    spec = MoeSpec(EXPERTS, PER_TOKEN, INTERMEDIATE, INTERMEDIATE)
    routing = allocate_routing(rows, spec, torch.device("cpu"))
    order = torch.rand(rows, EXPERTS, generator=generator).argsort(1)
    chosen, weights = order[:, :PER_TOKEN], torch.rand(rows, PER_TOKEN, generator=generator)
    fill = list_distinct if isinstance(routing, FewRowsRouting) else sort_pairs
    fill(weights, chosen, torch.rand(rows, generator=generator), routing)  # type: ignore[arg-type]
    return routing


def both(kind: str, shared_kind: str | None, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """The residual stream before, after the definition, and after the kernels with poisoned scratch."""
    generator = torch.Generator().manual_seed(rows)
    experts = experts_in(kind, generator)
    shared = None if shared_kind is None else shared_in(shared_kind, generator)
    norm = NormScale(torch.rand(HIDDEN, generator=generator) + 0.5, 1e-6)
    residual = torch.randn(rows, HIDDEN, generator=generator).bfloat16()
    routing = routing_of(rows, generator)
    scratch = experts_scratch(rows, routing, experts, shared)
    for part in vars(scratch).values():
        if part.is_floating_point():
            part.fill_(float("nan"))
    expected, actual = residual.clone(), residual.clone()
    assert portable.supports_experts_step(actual, norm, experts, shared, routing, scratch) is None
    reference.experts_step(expected, norm, experts, shared, routing, scratch)
    portable.experts_step(actual, norm, experts, shared, routing, scratch)
    return residual, expected, actual


def assert_same_sum(residual: Tensor, expected: Tensor, actual: Tensor) -> None:
    """Sums in another order may round an activation and the result to the neighbouring bfloat16."""
    assert not actual.isnan().any()
    wanted, got = (part.float() - residual.float() for part in (expected, actual))
    assert (got - wanted).norm() < 4e-3 * wanted.norm()


@pytest.mark.parametrize("kind", FORMATS)
def test_few_rows(kind: str) -> None:
    assert_same_sum(*both(kind, None, 2))


@pytest.mark.parametrize("kind", FORMATS)
def test_many_rows_with_more_pairs_than_a_block(kind: str) -> None:
    assert_same_sum(*both(kind, None, 26))


def test_the_shared_expert_may_have_another_format() -> None:
    assert_same_sum(*both("nvfp4", "bf16", 2))


def test_the_shared_expert_of_many_rows() -> None:
    assert_same_sum(*both("bf16", "bf16", 9))
