"""A head at 8 bits is nearly the head that it was made from, and touches nothing of the target."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from draftproof.architecture.spec import DenseMlpSpec
from draftproof.bench.precisions import layout_named
from draftproof.bench.shapes import load_shape, sample_of
from draftproof.bench.subject import load_synthetic
from draftproof.device.narrow_head import at_8_bits
from draftproof.device.weights import AttentionMixer, DenseMlp, DeviceHead, MixtureMlp, device_model
from draftproof.kernels.experts_step.reference import expert_matrices
from draftproof.kernels.packed_weights.formats import PackedMatrix, WeightFormat
from draftproof.kernels.packed_weights.unpacking import unpack

CPU = torch.device("cpu")
INT8_ERROR, FP8_ERROR = 0.012, 0.04
"""Root mean square errors of Gaussian weights, in units of their spread."""


def head_of(layout: str, *, dense: bool = False) -> DeviceHead:
    spec = sample_of(load_shape("qwen3.5-35b-a3b"))
    if dense:
        layer = replace(spec.layers[-1], mlp=DenseMlpSpec(256))
        spec = replace(spec, layers=(layer,), mtp=replace(spec.mtp, layer=layer))
    loaded = load_synthetic(spec, layout_named(layout), 16, CPU)
    with torch.inference_mode():
        model = device_model(loaded.target, loaded.head)
    assert model.head is not None
    return model.head


def error(narrow: PackedMatrix, wide: PackedMatrix) -> float:
    found, expected = unpack(narrow, torch.float32), unpack(wide, torch.float32)
    return float((found - expected).square().mean().sqrt() / expected.std())


def mixer_of(head: DeviceHead) -> AttentionMixer:
    assert isinstance(head.layer.mixer, AttentionMixer)
    return head.layer.mixer


@torch.inference_mode()
def test_matrices_become_int8_and_experts_fp8() -> None:
    wide = head_of("nvfp4")
    narrow = at_8_bits(wide)
    pairs = [
        (narrow.entry, wide.entry),
        (mixer_of(narrow).output, mixer_of(wide).output),
        (mixer_of(narrow).projections.matrices[0], mixer_of(wide).projections.matrices[0]),
        (narrow.drafts.matrix, wide.drafts.matrix),
    ]
    for small, large in pairs:
        assert small.format is WeightFormat.INT8
        assert 0 < error(small, large) < INT8_ERROR
    assert isinstance(narrow.layer.mlp, MixtureMlp)
    assert isinstance(wide.layer.mlp, MixtureMlp)
    for expert in range(2):
        for small, large in zip(
            expert_matrices(narrow.layer.mlp.experts, expert),
            expert_matrices(wide.layer.mlp.experts, expert),
            strict=True,
        ):
            assert small.format is WeightFormat.FP8
            assert 0 < error(small, large) < FP8_ERROR
    assert narrow.layer.mlp.shared is not None
    assert wide.layer.mlp.shared is not None
    assert 0 < error(narrow.layer.mlp.shared.gate_up, wide.layer.mlp.shared.gate_up) < FP8_ERROR


@torch.inference_mode()
def test_a_dense_head_too() -> None:
    wide = head_of("bf16", dense=True)
    narrow = at_8_bits(wide)
    assert isinstance(narrow.layer.mlp, DenseMlp)
    assert isinstance(wide.layer.mlp, DenseMlp)
    assert narrow.layer.mlp.gate_up.paired
    assert 0 < error(narrow.layer.mlp.gate_up, wide.layer.mlp.gate_up) < INT8_ERROR


@torch.inference_mode()
def test_what_is_stored_in_8_bits_stays() -> None:
    wide = head_of("fp8")
    narrow = at_8_bits(wide)
    assert narrow.layer.mlp is wide.layer.mlp
    assert mixer_of(narrow).output is mixer_of(wide).output


def norms_of(head: DeviceHead) -> list[Tensor]:
    return [getattr(head, each.name).weight for each in fields(head) if each.name.endswith("norm")]


@torch.inference_mode()
def test_norms_are_the_same_tensors() -> None:
    wide = head_of("bf16")
    for before, after in zip(norms_of(wide), norms_of(at_8_bits(wide)), strict=True):
        assert before is after
