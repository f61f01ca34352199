"""Layers of random packed experts, and routings of their rows, on any device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step.operands import SharedExpert
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


@dataclass(frozen=True)
class Maker:
    """Makes the operands of one layer.

    Attributes:
        spec: of the layer's experts.
        hidden: width of the residual stream.
        generator: of everything random; on the CPU, so that every device gets the same.
        device: of the results.
    """

    spec: MoeSpec
    hidden: int
    generator: torch.Generator
    device: str

    def matrix(self, kind: str, rows: int, columns: int, *leading: int) -> PackedMatrix:
        """A random packed matrix whose products have about the size of its inputs; `kind` is "bf16", "fp8",
        "fp8-blocks" or "nvfp4"."""
        size = columns**-0.5
        spread = (self._uniform(*leading, rows) + 0.5) * size
        if kind == "nvfp4":
            codes = torch.randint(0, 256, (*leading, rows, columns // 2), generator=self.generator)
            scales = self._uniform(*leading, rows, columns // 16) + 0.1
            scales[..., 0, 0] = 0
            return pack_nvfp4(
                codes.to(self.device, torch.uint8), scales.to(torch.float8_e4m3fn), spread[..., 0] / 2
            )
        values = torch.randn(*leading, rows, columns, generator=self.generator).to(self.device)
        if kind == "bf16":
            return pack_dense(values * size)
        if kind == "fp8":
            return pack_fp8(values.to(torch.float8_e4m3fn), spread)
        blocks = (self._uniform(*leading, -(-rows // 128), -(-columns // 128)) + 0.5) * size
        return pack_fp8_blocks(values.to(torch.float8_e4m3fn), blocks)

    def experts(self, kind: str) -> PackedExperts:
        """All routed experts of the layer."""
        count, width = self.spec.num_experts, self.spec.intermediate_size
        shapes = ((width, self.hidden), (width, self.hidden), (self.hidden, width))
        return pack_experts(*(self.matrix(kind, *shape, count) for shape in shapes))

    def shared(self, kind: str) -> SharedExpert:
        """The shared expert."""
        width = self.spec.shared_intermediate_size
        pair = pair_gate_up(self.matrix(kind, width, self.hidden), self.matrix(kind, width, self.hidden))
        return SharedExpert(pair, self.matrix(kind, self.hidden, width))

    def norm(self) -> NormScale:
        """Norm weights around 1."""
        return NormScale(self._uniform(self.hidden) + 0.5, 1e-6)

    def residual(self, rows: int) -> Tensor:
        """[rows, hidden] bfloat16."""
        return torch.randn(rows, self.hidden, generator=self.generator).bfloat16().to(self.device)

    def routing(self, rows: int) -> Routing:
        """A random choice of experts with random weights."""
        routing = allocate_routing(rows, self.spec, torch.device("cpu"))
        order = torch.rand(rows, self.spec.num_experts, generator=self.generator).argsort(1)
        chosen = order[:, : self.spec.experts_per_token]
        weights = torch.rand(chosen.shape, generator=self.generator)
        fill = list_distinct if isinstance(routing, FewRowsRouting) else sort_pairs
        fill(weights, chosen, torch.rand(rows, generator=self.generator), routing)  # type: ignore[arg-type]
        return type(routing)(**{name: part.to(self.device) for name, part in vars(routing).items()})

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator).to(self.device)


def assert_same_sum(residual: Tensor, expected: Tensor, actual: Tensor) -> None:
    """Sums in another order may round an activation and the result to the neighbouring bfloat16, 2^-8 away:
    on average about a third of 2^-8 of the result where that happens to half of the numbers."""
    assert not actual.isnan().any()
    wanted, got = expected.float(), actual.float()
    assert (wanted - residual.float()).norm() > 0.2 * wanted.norm()
    assert (got - wanted).norm() < 3e-3 * wanted.norm()
