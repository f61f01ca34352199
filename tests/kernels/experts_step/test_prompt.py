"""Experts of a prompt's rows against the definition of the mixture."""

from __future__ import annotations

import pytest
import torch

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts_step import prompt
from draftproof.kernels.experts_step.prompt import experts_of_prompt
from draftproof.kernels.packed_weights.packing import pack_dense, pack_experts
from draftproof.layers.linear import PackedLinear
from draftproof.layers.packed_mixture import PackedMixture

EXPERTS, PER_TOKEN, HIDDEN, INTERMEDIATE = 3, 2, 32, 16


def test_rows_beyond_one_call_are_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "MOST_ROWS", 12)
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

    first = (EXPERTS, INTERMEDIATE, HIDDEN)
    matrices = (pack_dense(random(*shape)) for shape in (first, first, (EXPERTS, HIDDEN, INTERMEDIATE)))
    experts = pack_experts(*matrices)
    spec = MoeSpec(EXPERTS, PER_TOKEN, INTERMEDIATE, 0)
    router = random(EXPERTS, HIDDEN)
    mixture = PackedMixture(spec, PackedLinear(pack_dense(router)), experts, None)
    rows = torch.randn(20, HIDDEN, generator=generator).bfloat16()
    weights, chosen = (rows.float() @ router.bfloat16().float().t()).softmax(-1).topk(PER_TOKEN, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    actual = experts_of_prompt(rows, chosen, weights, spec, experts).float()
    expected = mixture(rows.unsqueeze(0))[0].float()
    # Both round activations and results to bfloat16, the mixture also between gate and up.
    assert (actual - expected).norm() < 1e-2 * expected.norm()
