"""The MTP head at 8 bits, made when it is loaded: it only proposes, so no text depends on its precision."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from draftproof.device.weights import (
    AttentionMixer,
    DenseMlp,
    DeviceHead,
    DeviceLayer,
    DraftVocabulary,
    MixtureMlp,
    Projections,
)
from draftproof.kernels.draft_head.selection import as_int8
from draftproof.kernels.experts_step.operands import SharedExpert
from draftproof.kernels.experts_step.reference import expert_matrices
from draftproof.kernels.packed_weights.formats import PackedExperts, WeightFormat
from draftproof.kernels.packed_weights.packing import pack_experts, pack_fp8, pack_int8, pair_gate_up
from draftproof.kernels.packed_weights.unpacking import unpack

LARGEST_FP8 = 448.0


def at_8_bits(head: DeviceHead) -> DeviceHead:
    """The same head with half of BF16's bytes; what is stored in 8 bits or less stays as it is.

    Matrices become INT8 with a scale per row and 128 inputs; experts, which have no such kernels, FP8 with a
    scale per row.
    """
    mixer, mlp = head.layer.mixer, head.layer.mlp
    assert isinstance(mixer, AttentionMixer)
    narrow_mixer = replace(
        mixer,
        projections=Projections(tuple(as_int8(matrix) for matrix in mixer.projections.matrices)),
        output=as_int8(mixer.output),
    )
    return replace(
        head,
        entry=as_int8(head.entry),
        layer=DeviceLayer(narrow_mixer, _dense(mlp) if isinstance(mlp, DenseMlp) else _mixture(mlp)),
        drafts=DraftVocabulary(as_int8(head.drafts.matrix), head.drafts.token_ids),
    )


def _dense(mlp: DenseMlp) -> DenseMlp:
    if mlp.gate_up.format is not WeightFormat.BF16:
        return mlp
    gate, up = unpack(mlp.gate_up, torch.bfloat16).chunk(2)
    return replace(mlp, gate_up=pair_gate_up(pack_int8(gate), pack_int8(up)), down=as_int8(mlp.down))


def _mixture(mlp: MixtureMlp) -> MixtureMlp:
    if mlp.experts.format is not WeightFormat.BF16:
        return mlp
    return replace(
        mlp,
        experts=_fp8_experts(mlp.experts),
        shared=None if mlp.shared is None else _fp8_shared(mlp.shared),
    )


def _fp8_experts(experts: PackedExperts) -> PackedExperts:
    """Expert by expert: all of them as real numbers are gigabytes."""
    gates, ups, downs = [], [], []
    for expert in range(experts.experts):
        gate_up, down = expert_matrices(experts, expert)
        gate, up = unpack(gate_up, torch.bfloat16).chunk(2)
        gates.append(_quantised(gate))
        ups.append(_quantised(up))
        downs.append(_quantised(unpack(down, torch.bfloat16)))
    gate_part, up_part, down_part = (
        pack_fp8(torch.stack([weight for weight, _ in part]), torch.stack([scale for _, scale in part]))
        for part in (gates, ups, downs)
    )
    return pack_experts(gate_part, up_part, down_part)


def _fp8_shared(shared: SharedExpert) -> SharedExpert:
    if shared.gate_up.format is not WeightFormat.BF16:
        return shared
    gate, up = (pack_fp8(*_quantised(part)) for part in unpack(shared.gate_up, torch.bfloat16).chunk(2))
    return SharedExpert(pair_gate_up(gate, up), pack_fp8(*_quantised(unpack(shared.down, torch.bfloat16))))


def _quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rounded to nearest with a scale per row: [rows, columns] float8_e4m3fn, [rows] float32."""
    scale = weight.float().abs().amax(-1) / LARGEST_FP8
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (weight.float() / scale.unsqueeze(-1)).to(torch.float8_e4m3fn), scale
