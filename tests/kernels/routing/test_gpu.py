"""Routing in one CUDA launch: its logits against the definition, its choice against that of its logits."""

from __future__ import annotations

import pytest
import torch

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.packing import pack_dense
from draftproof.kernels.routing import cuda, reference
from draftproof.kernels.routing.routing import FewRowsRouting, allocate_routing, routing_scratch

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")


@pytest.mark.parametrize("rows", [1, 4, 8, 9, 64, 250, 512])
@pytest.mark.parametrize(
    "spec",
    [MoeSpec(256, 8, 64, 64), MoeSpec(512, 10, 64, 64, normalize_top_k=False), MoeSpec(40, 3, 64, 0)],
    ids=lambda spec: str(spec.num_experts),
)
def test_route(spec: MoeSpec, rows: int) -> None:
    check_route(spec, rows, 1024)


@pytest.mark.parametrize("rows", [4, 40])
@pytest.mark.parametrize("hidden", [3072, 4096])
def test_route_of_wide_rows(hidden: int, rows: int) -> None:
    check_route(MoeSpec(512, 10, 64, 64), rows, hidden)


def check_route(spec: MoeSpec, rows: int, hidden: int) -> None:
    generator = torch.Generator(GPU).manual_seed(rows)
    outputs = spec.num_experts + (spec.shared_intermediate_size > 0)
    residual = torch.randn(rows, hidden, generator=generator, device=GPU).bfloat16()
    norm = NormScale(torch.rand(hidden, generator=generator, device=GPU) + 0.5, 1e-6)
    weight = torch.randn(outputs, hidden, generator=generator, device=GPU) * hidden**-0.5
    weight[4:20] = weight[3]  # equal logits
    router = pack_dense(weight)
    routing, expected = (allocate_routing(rows, spec, GPU) for _ in range(2))
    scratch = routing_scratch(rows, spec, router.blocks.shape[0] * 16, GPU)
    for part in vars(routing).values():
        part.fill_(77)
    assert cuda.supports_route(residual, norm, router, spec, scratch, routing) is None
    for _ in range(2):  # the second launch finds the counters that the first one left
        cuda.route(residual, norm, router, spec, scratch, routing)
    logits = scratch.logits[:, :outputs]
    torch.testing.assert_close(logits, reference.router_logits(residual, norm, router), rtol=1e-4, atol=1e-4)
    weights, chosen = reference.choose(logits[:, : spec.num_experts], spec)
    has_shared = spec.shared_intermediate_size > 0
    shared = torch.sigmoid(logits[:, -1]) if has_shared else torch.zeros(rows, device=GPU)
    fill = reference.list_distinct if isinstance(routing, FewRowsRouting) else reference.sort_pairs
    fill(weights, chosen, shared, expected)  # type: ignore[arg-type]
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(routing, name), value, rtol=1e-4, atol=1e-6, msg=name)
