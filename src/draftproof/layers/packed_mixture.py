"""Mixture of experts over packed weights, for a prompt's rows; a step's few rows have their own kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.packed_weights.formats import PackedExperts
from draftproof.kernels.packed_weights.unpacking import unpack
from draftproof.layers.linear import PackedLinear
from draftproof.layers.mlp import GatedMlp

ExpertsOfPrompt = Callable[[Tensor, Tensor, Tensor, MoeSpec, PackedExperts], Tensor]
"""`kernels.experts_step.reference.experts_of_prompt`, or a kernel of the same signature."""


@dataclass(frozen=True)
class PackedMixture:
    """One layer.

    Attributes:
        spec: expert count and choice.
        router: hidden to one logit per expert; with a shared expert, its gate is one more output.
        experts: the routed experts.
        shared: the shared expert, packed too; None when the model has none.
        routed: what carries out the routed experts.
    """

    spec: MoeSpec
    router: PackedLinear
    experts: PackedExperts
    shared: GatedMlp | None
    routed: ExpertsOfPrompt

    def __call__(self, hidden: Tensor) -> Tensor:
        """[batch, rows, hidden] to the same; logits and routing in float32."""
        rows = hidden.reshape(-1, hidden.shape[-1])
        logits = rows.float() @ unpack(self.router.matrix, torch.float32).t()
        weights, chosen = logits[:, : self.spec.num_experts].softmax(-1).topk(self.spec.experts_per_token, -1)
        if self.spec.normalize_top_k:
            weights = weights / weights.sum(-1, keepdim=True)
        output = self.routed(rows, chosen, weights, self.spec, self.experts).float()
        if self.shared is not None:
            share = torch.sigmoid(logits[:, self.spec.num_experts])
            output += share.unsqueeze(1) * self.shared(rows).float()
        return output.to(hidden.dtype).view(hidden.shape)
