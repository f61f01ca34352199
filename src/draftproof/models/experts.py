"""Load gated MLPs and mixtures of experts, fused or per expert on disk."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.architecture.spec import MoeSpec
from draftproof.kernels.experts.reference import ExpertWeights
from draftproof.layers.linear import DenseLinear, Linear, Nvfp4Linear, join_outputs
from draftproof.layers.mlp import GatedMlp
from draftproof.layers.moe import DenseExperts, ExpertsOfLinears, MixtureOfExperts, Nvfp4Experts, PackedMatrices
from draftproof.models.account import TensorAccount
from draftproof.models.stored_linear import LoadTarget, load_linear


def load_mlp(
    account: TensorAccount, prefix: str, hidden: int, intermediate: int, target: LoadTarget
) -> GatedMlp:
    """A gated MLP stored as `gate_proj`, `up_proj`, `down_proj` below `prefix`."""
    gate = load_linear(account, f"{prefix}gate_proj", (intermediate, hidden), target)
    up = load_linear(account, f"{prefix}up_proj", (intermediate, hidden), target)
    down = load_linear(account, f"{prefix}down_proj", (hidden, intermediate), target)
    return GatedMlp(join_outputs([gate, up]), down)


def load_mixture(
    account: TensorAccount, prefix: str, hidden: int, spec: MoeSpec, target: LoadTarget
) -> MixtureOfExperts:
    """Router, routed experts and shared expert below `prefix`; the layout is read from the tensor names."""
    router = account.take(f"{prefix}gate.weight", (spec.num_experts, hidden))
    shared = None
    if spec.shared_intermediate_size:
        shared_gate = account.take(f"{prefix}shared_expert_gate.weight", (1, hidden))
        # One matrix product gives the router's logits and the shared expert's gate.
        router = torch.cat((router, shared_gate.to(router.dtype)))
        shared = load_mlp(account, f"{prefix}shared_expert.", hidden, spec.shared_intermediate_size, target)
    if account.has(f"{prefix}experts.gate_up_proj"):
        experts = _fused_experts(account, f"{prefix}experts.", hidden, spec, target)
    else:
        experts = _separate_experts(account, f"{prefix}experts.", hidden, spec, target)
    return MixtureOfExperts(spec, DenseLinear(router.to(target.dtype)), experts, shared)


def _fused_experts(
    account: TensorAccount, prefix: str, hidden: int, spec: MoeSpec, target: LoadTarget
) -> ExpertWeights:
    count, width = spec.num_experts, spec.intermediate_size
    gate_up = account.take(f"{prefix}gate_up_proj", (count, 2 * width, hidden))
    down = account.take(f"{prefix}down_proj", (count, hidden, width))
    return DenseExperts(gate_up.to(target.dtype), down.to(target.dtype))


def _separate_experts(
    account: TensorAccount, prefix: str, hidden: int, spec: MoeSpec, target: LoadTarget
) -> ExpertWeights:
    width = spec.intermediate_size
    gates, ups, downs = (
        [load_linear(account, f"{prefix}{expert}.{name}", shape, target) for expert in range(spec.num_experts)]
        for name, shape in (("gate_proj", (width, hidden)), ("up_proj", (width, hidden)), ("down_proj", (hidden, width)))
    )
    packed = [_packed(members) for members in (gates, ups, downs)]
    if all(matrices is not None for matrices in packed):
        gate, up, down = (matrices for matrices in packed if matrices is not None)
        return Nvfp4Experts(gate, up, down, target.dtype)
    if all(isinstance(member, DenseLinear) for member in (*gates, *ups, *downs)):
        pairs = [torch.cat((gate.dense_weight(), up.dense_weight())) for gate, up in zip(gates, ups, strict=True)]
        return DenseExperts(torch.stack(pairs), torch.stack([member.dense_weight() for member in downs]))
    joined = tuple(join_outputs([gate, up]) for gate, up in zip(gates, ups, strict=True))
    return ExpertsOfLinears(joined, tuple(downs))


def _packed(members: list[Linear]) -> PackedMatrices | None:
    """All experts' matrices as one stack, when every one of them is packed."""
    packed = [member for member in members if isinstance(member, Nvfp4Linear)]
    if len(packed) < len(members):
        return None

    return PackedMatrices(
        torch.stack([member.packed for member in packed]),
        torch.stack([member.block_scale for member in packed]),
        torch.stack([member.global_scale for member in packed]),
    )
