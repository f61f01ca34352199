"""Weights packed for a device step stand for the numbers on disk, in every precision and dialect."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from draftproof.kernels.experts_step.reference import expert_matrices
from draftproof.kernels.packed_weights.formats import WeightFormat
from draftproof.kernels.packed_weights.unpacking import unpack
from draftproof.layers.decoder import AttentionLayer, RecurrentLayer
from draftproof.layers.linear import DenseLinear, Linear, PackedLinear, ParallelLinear
from draftproof.layers.mlp import GatedMlp
from draftproof.layers.packed_mixture import PackedMixture
from draftproof.models.loading import LoadedModel
from draftproof.models.stored_linear import DenseBackend
from draftproof.models.weight_storage import WeightStorage
from tests.models.quantized import QUANTIZED, logits_of
from tests.models.reference import assert_same_logits
from tests.support.checkpoints import BF16, CheckpointOptions, WrittenCheckpoint
from tests.support.engines import load

Checkpoints = Callable[[CheckpointOptions], WrittenCheckpoint]

BECOMES_BF16 = (
    "fp8 block",
    "fp8 block, moe",
    "fp8 block, qwen3-next",
    "fp8 experts",
    "fp8 tensor, qwen3-next",
    "nvfp4 routed, fp8 head",
)
"""Blocks that are not 128 x 128, and the fused projections of Qwen3-Next."""


def packed(written: WrittenCheckpoint) -> LoadedModel:
    return load(written.folder, storage=WeightStorage.PACKED, backend=DenseBackend.PACKED_BLOCKS)


@pytest.mark.parametrize("layout", [layout for layout in QUANTIZED if layout not in BECOMES_BF16])
def test_packed_weights_stand_for_their_real_numbers(checkpoint: Checkpoints, layout: str) -> None:
    written = checkpoint(QUANTIZED[layout])
    for ours, real in zip(logits_of(packed(written)), logits_of(load(written.folder)), strict=True):
        assert_same_logits(ours, real)


@pytest.mark.parametrize("layout", BECOMES_BF16)
def test_what_no_packed_format_holds_is_rounded_to_bfloat16(checkpoint: Checkpoints, layout: str) -> None:
    written = checkpoint(QUANTIZED[layout])
    for ours, real in zip(all_weights(packed(written)), all_weights(load(written.folder)), strict=True):
        assert torch.equal(ours, real) or torch.equal(ours, real.bfloat16().float())


@pytest.mark.parametrize(
    "options", [CheckpointOptions(precision=BF16), CheckpointOptions(moe=True, tied=True)]
)
def test_bfloat16_is_kept_exactly(checkpoint: Checkpoints, options: CheckpointOptions) -> None:
    written = checkpoint(options)
    for ours, real in zip(logits_of(packed(written)), logits_of(load(written.folder)), strict=True):
        assert_same_logits(ours, real)


def test_each_module_keeps_its_own_precision(checkpoint: Checkpoints) -> None:
    model = packed(checkpoint(QUANTIZED["nvfp4 mixed"]))
    recurrent = next(layer for layer in model.target.layers if isinstance(layer, RecurrentLayer))
    attention = next(layer for layer in model.target.layers if isinstance(layer, AttentionLayer))
    assert isinstance(recurrent.mixer.projections, ParallelLinear)
    wide, narrow = recurrent.mixer.projections.members
    assert isinstance(wide, PackedLinear)
    assert isinstance(narrow, PackedLinear)
    assert (wide.matrix.format, narrow.matrix.format) == (WeightFormat.FP8, WeightFormat.BF16)
    assert isinstance(attention.attention.projections, PackedLinear)
    assert isinstance(attention.mlp, PackedMixture)
    assert attention.mlp.experts.format is WeightFormat.NVFP4


def all_weights(model: LoadedModel) -> list[Tensor]:
    """Every projection of every layer, the head's last, as float32."""
    assert model.head is not None
    found = [weight_of(model.head.fc)]
    for layer in (*model.target.layers, *model.head.layers):
        mixer = layer.attention if isinstance(layer, AttentionLayer) else layer.mixer
        found += [weight_of(mixer.projections), weight_of(mixer.output)]
        mlp = layer.mlp
        if isinstance(mlp, GatedMlp):
            found += [weight_of(mlp.gate_up), weight_of(mlp.down)]
        elif isinstance(mlp, PackedMixture):
            for expert in range(mlp.experts.experts):
                found += [unpack(matrix, torch.float32) for matrix in expert_matrices(mlp.experts, expert)]
        else:
            for gate_up, down in zip(mlp.experts.gate_up, mlp.experts.down, strict=True):
                found += [weight_of(gate_up), weight_of(down)]
    return found


def weight_of(linear: Linear) -> Tensor:
    if isinstance(linear, ParallelLinear):
        return torch.cat([weight_of(member) for member in linear.members])
    if isinstance(linear, PackedLinear):
        return unpack(linear.matrix, torch.float32)
    assert isinstance(linear, DenseLinear)
    return linear.columns.t().contiguous()
