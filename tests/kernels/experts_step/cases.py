"""Random experts, routings and streams for tests of the experts' kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step import reference
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

FORMATS = ("bf16", "fp8", "fp8-blocks", "nvfp4")
Record = TypeVar("Record")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shape:
    """Sizes of a layer."""

    experts: int
    per_token: int
    hidden: int
    intermediate: int

    @property
    def spec(self) -> MoeSpec:
        return MoeSpec(self.experts, self.per_token, self.intermediate, self.intermediate)


def moved(record: Record, device: torch.device) -> Record:
    """A frozen record with its tensors, and those of records in it, on a device."""
    changes = {}
    for name, value in vars(record).items():
        if isinstance(value, Tensor):
            changes[name] = value.to(device)
        elif isinstance(value, PackedMatrix):
            changes[name] = moved(value, device)  # type: ignore[assignment]
    return replace(record, **changes)  # type: ignore[type-var]


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


def experts_in(kind: str, shape: Shape, generator: torch.Generator) -> PackedExperts:
    """Routed experts in one format."""
    first, second = (shape.intermediate, shape.hidden), (shape.hidden, shape.intermediate)
    gate, up, down = (matrix(kind, *size, generator, shape.experts) for size in (first, first, second))
    return pack_experts(gate, up, down)


def shared_in(kind: str, shape: Shape, generator: torch.Generator) -> SharedExpert:
    """A shared expert as wide as the routed ones."""
    gate, up = (matrix(kind, shape.intermediate, shape.hidden, generator) for _ in range(2))
    return SharedExpert(pair_gate_up(gate, up), matrix(kind, shape.hidden, shape.intermediate, generator))


def routing_of(rows: int, shape: Shape, generator: torch.Generator) -> Routing:
    """Random choices."""
    routing = allocate_routing(rows, shape.spec, torch.device("cpu"))
    order = torch.rand(rows, shape.experts, generator=generator).argsort(1)
    chosen, weights = order[:, : shape.per_token], torch.rand(rows, shape.per_token, generator=generator)
    fill = list_distinct if isinstance(routing, FewRowsRouting) else sort_pairs
    fill(weights, chosen, torch.rand(rows, generator=generator), routing)  # type: ignore[arg-type]
    return routing


def before_and_after(
    step: Callable[..., None],
    shape: Shape,
    kinds: tuple[str, str | None],
    rows: int,
    device: torch.device = CPU,
) -> tuple[Tensor, Tensor, Tensor]:
    """The residual stream before, after the definition, and after the kernels with poisoned scratch.

    Args:
        step: the op.
        shape: of the layer.
        kinds: formats of the routed and of the shared experts.
        rows: of the step.
        device: of the kernels; the definition runs on the CPU.
    """
    generator = torch.Generator().manual_seed(rows)
    experts = experts_in(kinds[0], shape, generator)
    shared = None if kinds[1] is None else shared_in(kinds[1], shape, generator)
    norm = NormScale(torch.rand(shape.hidden, generator=generator) + 0.5, 1e-6)
    residual = torch.randn(rows, shape.hidden, generator=generator).bfloat16()
    routing = routing_of(rows, shape, generator)
    expected, actual = residual.clone(), residual.to(device, copy=True)
    scratch = experts_scratch(rows, routing, experts, shared)
    reference.experts_step(expected, norm, experts, shared, routing, scratch)
    for part in vars(scratch).values():
        if part.is_floating_point():
            part.fill_(float("nan"))
    there = (moved(part, device) for part in (norm, experts, *([] if shared is None else [shared])))
    near = list(there)
    step(actual, *near[:2], near[2] if shared else None, moved(routing, device), moved(scratch, device))
    return residual, expected, actual.cpu()


def assert_same_sum(residual: Tensor, expected: Tensor, actual: Tensor) -> None:
    """Sums in another order may round an activation and the result to the neighbouring bfloat16."""
    assert not actual.isnan().any()
    wanted, got = (part.float() - residual.float() for part in (expected, actual))
    assert (got - wanted).norm() < 4e-3 * wanted.norm()
