"""Mixture of experts over packed weights, for a prompt's rows; a step's few rows have their own kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.packed_weights.formats import PackedExperts, PackedMatrix
from draftproof.kernels.packed_weights.unpacking import unpack
from draftproof.layers.linear import PackedLinear
from draftproof.layers.mlp import GatedMlp


@dataclass(frozen=True)
class PackedMixture:
    """One layer.

    Attributes:
        spec: expert count and choice.
        router: hidden to one logit per expert; with a shared expert, its gate is one more output.
        experts: the routed experts.
        shared: the shared expert, packed too; None when the model has none.
    """

    spec: MoeSpec
    router: PackedLinear
    experts: PackedExperts
    shared: GatedMlp | None

    def __call__(self, hidden: Tensor) -> Tensor:
        """[batch, rows, hidden] to the same; logits and routing in float32."""
        rows = hidden.reshape(-1, hidden.shape[-1])
        logits = rows.float() @ unpack(self.router.matrix, torch.float32).t()
        weights, chosen = logits[:, : self.spec.num_experts].softmax(-1).topk(self.spec.experts_per_token, -1)
        if self.spec.normalize_top_k:
            weights = weights / weights.sum(-1, keepdim=True)
        share = None if self.shared is None else torch.sigmoid(logits[:, self.spec.num_experts])
        if rows.is_cuda and rows.dtype is torch.bfloat16:
            # Imported here: its kernels need Triton, which a CPU has no use for.
            from draftproof.kernels.experts_step.prompt import experts_of_prompt

            routed = experts_of_prompt(rows, chosen, weights, self.spec, self.experts).float()
        else:
            routed = self._one_by_one(rows, chosen, weights)
        if self.shared is not None and share is not None:
            routed += share.unsqueeze(1) * self.shared(rows).float()
        return routed.to(hidden.dtype).view(hidden.shape)

    def _one_by_one(self, rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The routed experts by their definition, float32."""
        output = torch.zeros(rows.shape, dtype=torch.float32, device=rows.device)
        for expert in torch.bincount(chosen.flatten()).nonzero().flatten().tolist():
            row, place = (chosen == expert).nonzero(as_tuple=True)
            gate, up = F.linear(rows[row], unpack(self.gate_up(expert), rows.dtype)).chunk(2, -1)
            product = F.linear(F.silu(gate) * up, unpack(self.down(expert), rows.dtype))
            output.index_add_(0, row, product.float() * weights[row, place].unsqueeze(1))
        return output

    def gate_up(self, expert: int) -> PackedMatrix:
        """One expert's first matrix, paired."""
        packed = self.experts
        return PackedMatrix(
            packed.format,
            2 * packed.intermediate,
            packed.hidden,
            packed.gate_up[expert],
            None if packed.gate_up_scale is None else packed.gate_up_scale[expert],
            None if packed.gate_up_block_scale is None else packed.gate_up_block_scale[expert],
            paired=True,
        )

    def down(self, expert: int) -> PackedMatrix:
        """One expert's second matrix."""
        packed = self.experts
        return PackedMatrix(
            packed.format,
            packed.hidden,
            packed.intermediate,
            packed.down[expert],
            None if packed.down_scale is None else packed.down_scale[expert],
            None if packed.down_block_scale is None else packed.down_block_scale[expert],
        )
