"""Load gated MLPs and mixtures of experts, fused or per expert on disk."""

from __future__ import annotations

import torch

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts.reference import Experts
from draftproof.layers.linear import PackedLinear
from draftproof.layers.mlp import GatedMlp
from draftproof.layers.moe import MixtureOfExperts
from draftproof.layers.packed_mixture import PackedMixture
from draftproof.models.account import TensorAccount
from draftproof.models.expert_stacks import load_packed_experts
from draftproof.models.packed import pack_stored
from draftproof.models.projections import join, join_pair, load_linear
from draftproof.models.stored_linear import DenseBackend, LoadTarget, Matrix, read_matrix


def load_mlp(
    account: TensorAccount, prefix: str, hidden: int, intermediate: int, target: LoadTarget
) -> GatedMlp:
    """A gated MLP stored as `gate_proj`, `up_proj`, `down_proj` below `prefix`."""
    gate = read_matrix(account, f"{prefix}gate_proj", (intermediate, hidden), target)
    up = read_matrix(account, f"{prefix}up_proj", (intermediate, hidden), target)
    down = load_linear(account, f"{prefix}down_proj", (hidden, intermediate), target)
    return GatedMlp(join_pair(gate, up, target), down)


def load_mixture(
    account: TensorAccount, prefix: str, hidden: int, spec: MoeSpec, target: LoadTarget
) -> MixtureOfExperts | PackedMixture:
    """Router, routed experts and shared expert below `prefix`; the layout is read from the tensor names."""
    router = account.take(f"{prefix}gate.weight", (spec.num_experts, hidden)).float()
    shared = None
    if spec.shared_intermediate_size:
        shared_gate = account.take(f"{prefix}shared_expert_gate.weight", (1, hidden)).float()
        # One matrix product gives the router's logits and the shared expert's gate.
        router = torch.cat((router, shared_gate))
        shared = load_mlp(account, f"{prefix}shared_expert.", hidden, spec.shared_intermediate_size, target)
    if target.backend is DenseBackend.PACKED_BLOCKS:
        packed = load_packed_experts(account, f"{prefix}experts.", hidden, spec)
        router_matrix = PackedLinear(pack_stored(Matrix(router)))
        return PackedMixture(spec, router_matrix, packed, shared, target.experts_of_prompt)
    fused = account.has(f"{prefix}experts.gate_up_proj")
    experts = (_fused_experts if fused else _separate_experts)(
        account, f"{prefix}experts.", hidden, spec, target
    )
    return MixtureOfExperts(spec, join([Matrix(router)], target), experts, shared)


def _fused_experts(
    account: TensorAccount, prefix: str, hidden: int, spec: MoeSpec, target: LoadTarget
) -> Experts:
    count, width = spec.num_experts, spec.intermediate_size
    gate_up = account.take(f"{prefix}gate_up_proj", (count, 2 * width, hidden)).float()
    down = account.take(f"{prefix}down_proj", (count, hidden, width)).float()
    return Experts(
        tuple(join([Matrix(matrix)], target) for matrix in gate_up),
        tuple(join([Matrix(matrix)], target) for matrix in down),
    )


def _separate_experts(
    account: TensorAccount, prefix: str, hidden: int, spec: MoeSpec, target: LoadTarget
) -> Experts:
    """Gate and up keep their own global scales: they differ in real checkpoints, and one scale for both
    halves is a known way to garbage."""
    mlps = [
        load_mlp(account, f"{prefix}{expert}.", hidden, spec.intermediate_size, target)
        for expert in range(spec.num_experts)
    ]
    return Experts(tuple(mlp.gate_up for mlp in mlps), tuple(mlp.down for mlp in mlps))
