"""Mixture of experts: softmax router, routed experts, one gated shared expert."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.dequantize.reference import dequantize_nvfp4
from draftproof.kernels.experts.reference import ExpertWeights, routed_experts
from draftproof.layers.linear import DenseLinear, Linear
from draftproof.layers.mlp import GatedMlp


class DenseExperts:
    """Routed experts in the compute dtype: gate_up [E, 2I, hidden] and down [E, hidden, I]."""

    def __init__(self, gate_up: Tensor, down: Tensor) -> None:
        self.num_experts = gate_up.shape[0]
        self._gate_up = gate_up.unbind(0)
        self._down = down.unbind(0)

    def gate_up(self, expert: int) -> Tensor:
        return self._gate_up[expert]

    def down(self, expert: int) -> Tensor:
        return self._down[expert]


@dataclass(frozen=True)
class PackedMatrices:
    """One NVFP4 matrix per expert: packed [E, out, in/2], block_scale [E, out, in/16], global_scale [E]."""

    packed: Tensor
    block_scale: Tensor
    global_scale: Tensor

    def dense(self, expert: int) -> Tensor:
        """[out, in] float32."""
        return dequantize_nvfp4(self.packed[expert], self.block_scale[expert], self.global_scale[expert])


class Nvfp4Experts:
    """Routed experts kept as packed 4-bit floats.

    Gate and up keep their own global scales: they differ in real checkpoints, and one scale for both halves is a
    known way to garbage.
    """

    def __init__(self, gate: PackedMatrices, up: PackedMatrices, down: PackedMatrices, dtype: torch.dtype) -> None:
        self.num_experts = gate.packed.shape[0]
        self._gate, self._up, self._down = gate, up, down
        self._dtype = dtype

    def gate_up(self, expert: int) -> Tensor:
        return torch.cat((self._gate.dense(expert), self._up.dense(expert))).to(self._dtype)

    def down(self, expert: int) -> Tensor:
        return self._down.dense(expert).to(self._dtype)


class ExpertsOfLinears:
    """Routed experts whose matrices keep any other storage (8-bit floats)."""

    def __init__(self, gate_up: tuple[Linear, ...], down: tuple[Linear, ...]) -> None:
        self.num_experts = len(gate_up)
        self._gate_up, self._down = gate_up, down

    def gate_up(self, expert: int) -> Tensor:
        return self._gate_up[expert].dense_weight()

    def down(self, expert: int) -> Tensor:
        return self._down[expert].dense_weight()


@dataclass(frozen=True)
class MixtureOfExperts:
    """One layer.

    Attributes:
        spec: expert count and choice.
        router: [num_experts, hidden] weight; with a shared expert, its gate is one more row below.
        experts: routed experts' weights.
        shared: the shared expert; None when the model has none.
    """

    spec: MoeSpec
    router: DenseLinear
    experts: ExpertWeights
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
