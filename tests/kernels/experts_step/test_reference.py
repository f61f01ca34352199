"""The definition of a step's experts against the model's own mixture of experts on the same numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts import reference as dense
from draftproof.kernels.experts_step import reference
from draftproof.kernels.experts_step.operands import SharedExpert, experts_scratch
from draftproof.kernels.norm.scale import NormScale
from draftproof.kernels.packed_weights.packing import pack_dense, pack_experts, pair_gate_up
from draftproof.kernels.routing.reference import list_distinct, sort_pairs
from draftproof.kernels.routing.routing import FewRowsRouting, allocate_routing

EXPERTS, PER_TOKEN, HIDDEN, INTERMEDIATE = 5, 2, 48, 24


def test_it_is_the_mixture_of_the_normed_rows_added_to_the_residual() -> None:
    layer = Layer(shared=True)
    assert torch.allclose(layer.step(rows=3), layer.expected(), rtol=0.02, atol=0.02)


def test_a_model_may_have_no_shared_expert() -> None:
    layer = Layer(shared=False)
    assert torch.allclose(layer.step(rows=3), layer.expected(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("rows", [1, 8, 9, 20])
def test_both_forms_of_routing_say_the_same(rows: int) -> None:
    layer = Layer(shared=True)
    assert torch.allclose(layer.step(rows), layer.expected(), rtol=0.02, atol=0.02)


def test_the_activations_between_the_matrices_are_bfloat16() -> None:
    """One expert whose down is the identity gives back its activations, at a weight of 1."""
    gate, up = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    experts = pack_experts(pack_dense(gate), pack_dense(up), pack_dense(torch.eye(16)[None]))
    routing = allocate_routing(1, MoeSpec(1, 1, 16, 0), torch.device("cpu"))
    assert isinstance(routing, FewRowsRouting)
    list_distinct(torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1), routing)
    residual = torch.ones(1, 16, dtype=torch.bfloat16)
    norm = NormScale(torch.ones(16), 0.0)
    reference.experts_step(residual, norm, experts, None, routing, experts_scratch(1, routing, experts, None))
    products = [part[0].bfloat16().float().sum(1) for part in (gate, up)]
    activated = (F.silu(products[0]) * products[1]).bfloat16().float()
    assert torch.equal(residual[0], (1 + activated).bfloat16())


class Layer:
    """A layer of random BF16 experts, and its last step in float32."""

    def __init__(self, shared: bool) -> None:
        self.generator = torch.Generator().manual_seed(4)
        self.spec = MoeSpec(EXPERTS, PER_TOKEN, INTERMEDIATE, INTERMEDIATE if shared else 0)
        count = EXPERTS + 1 if shared else EXPERTS
        self.gate, self.up = (self.random(count, INTERMEDIATE, HIDDEN) for _ in range(2))
        self.down = self.random(count, HIDDEN, INTERMEDIATE)
        routed = [pack_dense(part[:EXPERTS]) for part in (self.gate, self.up, self.down)]
        self.experts = pack_experts(*routed)
        alone = [pack_dense(part[-1]) for part in (self.gate, self.up, self.down)]
        self.shared = SharedExpert(pair_gate_up(*alone[:2]), alone[2]) if shared else None
        self.norm = NormScale(torch.rand(HIDDEN, generator=self.generator) + 0.5, 1e-6)

    def random(self, *shape: int) -> Tensor:
        """Numbers that BF16 holds."""
        return torch.randn(shape, generator=self.generator).mul(shape[-1] ** -0.5).bfloat16().float()

    def step(self, rows: int) -> Tensor:
        """The residual stream after a step; remembers what `expected` needs."""
        routing = allocate_routing(rows, self.spec, torch.device("cpu"))
        self.chosen = torch.rand(rows, EXPERTS, generator=self.generator).argsort(1)[:, :PER_TOKEN]
        self.weights = torch.rand(rows, PER_TOKEN, generator=self.generator)
        self.share = torch.rand(rows, generator=self.generator)
        fill = list_distinct if isinstance(routing, FewRowsRouting) else sort_pairs
        fill(self.weights, self.chosen, self.share, routing)  # type: ignore[arg-type]
        self.before = torch.randn(rows, HIDDEN, generator=self.generator).bfloat16()
        residual = self.before.clone()
        scratch = experts_scratch(rows, routing, self.experts, self.shared)
        reference.experts_step(residual, self.norm, self.experts, self.shared, routing, scratch)
        return residual.float()

    def expected(self) -> Tensor:
        """The last step from the model's mixture of experts."""
        wide = self.before.float()
        normed = F.rms_norm(wide, (HIDDEN,), self.norm.weight, self.norm.epsilon)
        gate_up = torch.cat((self.gate, self.up), 1)
        experts = dense.Experts(
            tuple(lambda rows, w=w: rows @ w.t() for w in gate_up),  # type: ignore[misc]
            tuple(lambda rows, w=w: rows @ w.t() for w in self.down),  # type: ignore[misc]
        )
        output = wide + dense.routed_experts(normed, self.chosen, self.weights, experts)
        if self.shared is None:
            return output
        everyone = torch.full((len(wide), 1), EXPERTS)
        return output + dense.routed_experts(normed, everyone, self.share.unsqueeze(1), experts)
