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
        rows = hidden.view(-1, hidden.shape[-1])
        logits = self.router(rows)
        if self.shared is None:
            routing, chosen = self._choose(logits)
            return routed_experts(rows, chosen, routing.to(rows.dtype), self.experts).view(hidden.shape)
        count = self.spec.num_experts
        logits, gate = logits.split_with_sizes((count, 1), 1)
        routing, chosen = self._choose(logits)
        share = torch.sigmoid(gate)
        if self._all_experts is None:
            output = routed_experts(rows, chosen, routing.to(rows.dtype), self.experts)
            return output.addcmul_(share, self.shared(rows)).view(hidden.shape)
        routing = torch.cat((routing.to(rows.dtype), share), 1)
        return routed_experts(rows, chosen, routing, self._all_experts, (count,)).view(hidden.shape)

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
