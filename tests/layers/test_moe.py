"""The mixture: softmax over all experts, the best k with shares that sum to one, and a gated shared one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts.reference import Experts
from draftproof.layers.linear import DenseLinear
from draftproof.layers.mlp import GatedMlp
from draftproof.layers.moe import MixtureOfExperts

HIDDEN, INNER, EXPERTS, CHOSEN = 12, 20, 6, 2


def weights(shared: int) -> dict[str, Tensor]:
    """Of one layer whose shared expert is this wide."""
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "router": (EXPERTS, HIDDEN),
        "shared_gate": (1, HIDDEN),
        "gate": (EXPERTS, INNER, HIDDEN),
        "up": (EXPERTS, INNER, HIDDEN),
        "down": (EXPERTS, HIDDEN, INNER),
        "shared_gate_proj": (shared, HIDDEN),
        "shared_up": (shared, HIDDEN),
        "shared_down": (HIDDEN, shared),
    }
    return {name: torch.randn(shape, generator=generator) * 0.5 for name, shape in shapes.items()}


def mixture(parts: dict[str, Tensor], normalize: bool, shared: int) -> MixtureOfExperts:
    spec = MoeSpec(EXPERTS, CHOSEN, INNER, shared, normalize)
    router = torch.cat((parts["router"], parts["shared_gate"])) if shared else parts["router"]
    pairs = zip(parts["gate"], parts["up"], strict=True)
    experts = Experts(
        tuple(DenseLinear(torch.cat(pair)) for pair in pairs),
        tuple(DenseLinear(matrix) for matrix in parts["down"]),
    )
    mlp = GatedMlp(
        DenseLinear(torch.cat((parts["shared_gate_proj"], parts["shared_up"]))),
        DenseLinear(parts["shared_down"]),
    )
    return MixtureOfExperts(spec, DenseLinear(router), experts, mlp if shared else None)


def by_the_book(row: Tensor, parts: dict[str, Tensor], normalize: bool, shared: int) -> Tensor:
    probabilities = torch.softmax(parts["router"] @ row, 0)
    best = sorted(range(EXPERTS), key=lambda expert: -float(probabilities[expert]))[:CHOSEN]
    total = sum(float(probabilities[expert]) for expert in best) if normalize else 1.0
    output = torch.zeros(HIDDEN)
    for expert in best:
        inner = F.silu(parts["gate"][expert] @ row) * (parts["up"][expert] @ row)
        output += float(probabilities[expert]) / total * (parts["down"][expert] @ inner)
    if shared:
        inner = F.silu(parts["shared_gate_proj"] @ row) * (parts["shared_up"] @ row)
        output += torch.sigmoid(parts["shared_gate"] @ row) * (parts["shared_down"] @ inner)
    return output


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("shared", [0, 16, INNER], ids=["none", "narrower", "as wide"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 40)])
def test_it_follows_the_definition(normalize: bool, shared: int, shape: tuple[int, int]) -> None:
    parts = weights(shared)
    hidden = torch.randn(*shape, HIDDEN, generator=torch.Generator().manual_seed(1))
    found = mixture(parts, normalize, shared)(hidden)
    assert found.shape == hidden.shape
    expected = torch.stack([by_the_book(row, parts, normalize, shared) for row in hidden.flatten(0, 1)])
    torch.testing.assert_close(found.flatten(0, 1), expected, atol=1e-5, rtol=1e-4)
