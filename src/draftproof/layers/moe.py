"""Mixture of experts: softmax router, routed experts, one gated shared expert."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts.host import routed_experts
from draftproof.kernels.experts.reference import Experts
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
        count = self.spec.num_experts
        routing, chosen = self._choose(logits if self.shared is None else logits[:, :count])
        routing = routing.to(rows.dtype)
        if self._all_experts is not None:
            routing = torch.cat((routing, torch.sigmoid(logits[:, count:])), 1)
            return routed_experts(rows, chosen, routing, self._all_experts, (count,)).view(hidden.shape)
        output = routed_experts(rows, chosen, routing, self.experts)
        if self.shared is not None:
            output = output + torch.sigmoid(logits[:, count:]) * self.shared(rows)
        return output.view(hidden.shape)

    def _choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and numbers of each row's experts, both [rows, experts_per_token]; softmax in float32."""
        if self.spec.normalize_top_k:
            # A softmax over the chosen logits is the softmax over all of them, normalised to the chosen ones.
            largest, chosen = logits.float().topk(self.spec.experts_per_token, -1)
            return largest.softmax(-1), chosen
        routing, chosen = F.softmax(logits.float(), -1).topk(self.spec.experts_per_token, -1)
        return routing, chosen

    @cached_property
    def _all_experts(self) -> Experts | None:
        """The routed experts and, when as wide as they are, the shared one as one that every row has."""
        if self.shared is None or self.spec.shared_intermediate_size != self.spec.intermediate_size:
            return None
        return Experts((*self.experts.gate_up, self.shared.gate_up), (*self.experts.down, self.shared.down))
