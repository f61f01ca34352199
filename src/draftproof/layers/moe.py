"""Mixture of experts: softmax router, routed experts, one gated shared expert."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts.reference import Experts, routed_experts
from draftproof.layers.linear import Linear
from draftproof.layers.mlp import GatedMlp


@dataclass(frozen=True)
class MixtureOfExperts:
    """One layer.

    Attributes:
        spec: expert count and choice.
        router: hidden to one logit per expert; with a shared expert, its gate is one more output.
        experts: the routed experts.
        shared: the shared expert; None when the model has none.
    """

    spec: MoeSpec
    router: Linear
    experts: Experts
    shared: GatedMlp | None

    def __call__(self, hidden: Tensor) -> Tensor:
        """[batch, rows, hidden] to the same."""
        rows = hidden.flatten(0, -2)
        logits = self.router(rows)
        probabilities = F.softmax(logits[:, : self.spec.num_experts].float(), -1)
        routing, chosen = probabilities.topk(self.spec.experts_per_token, -1)
        if self.spec.normalize_top_k:
            routing = routing / routing.sum(-1, keepdim=True)
        output = routed_experts(rows, chosen, routing.to(rows.dtype), self.experts)
        if self.shared is not None:
            output = output + torch.sigmoid(logits[:, self.spec.num_experts :]) * self.shared(rows)
        return output.view(hidden.shape)
