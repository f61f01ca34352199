"""Fabricated tensors are accounted for like real ones, and look like weights."""

from __future__ import annotations

import pytest
import torch

from draftproof.architecture.stored_plan import Storage
from draftproof.architecture.tensor_plan import ModelPart, PlannedTensor, TensorGroup
from draftproof.bench.precisions import LAYOUTS, PrecisionLayout, layout_named
from draftproof.bench.shapes import load_shape, sample_of
from draftproof.bench.subject import PACKED, load_synthetic
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import Precision
from draftproof.errors import AccountingError
from draftproof.kernels.experts_step.reference import expert_matrices
from draftproof.kernels.packed_weights.formats import WeightFormat
from draftproof.kernels.packed_weights.unpacking import unpack
from draftproof.layers.decoder import AttentionLayer
from draftproof.layers.linear import PackedLinear
from draftproof.layers.packed_mixture import PackedMixture
from draftproof.models import expert_stacks
from draftproof.models.account import TensorAccount
from draftproof.models.loading import load_model
from draftproof.models.synthetic import STANDARD_DEVIATION, SyntheticReader, synthetic_tensors

CPU = torch.device("cpu")
FORMATS = {
    "nvfp4": (WeightFormat.BF16, WeightFormat.NVFP4),
    "nvfp4-3.6": (WeightFormat.FP8, WeightFormat.NVFP4),
    "nvfp4-routed": (WeightFormat.BF16, WeightFormat.NVFP4),
    "fp8": (WeightFormat.FP8, WeightFormat.FP8),
    "bf16": (WeightFormat.BF16, WeightFormat.BF16),
}
"""Of the attention's output projection, and of the routed experts."""


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_layout_loads_whole_and_keeps_its_precisions(layout: PrecisionLayout) -> None:
    model = load_synthetic(sample_of(load_shape("qwen3.5-35b-a3b")), layout, 16, CPU)
    assert model.report.skipped == ()
    layer = model.target.layers[-1]
    assert isinstance(layer, AttentionLayer)
    assert isinstance(layer.attention.output, PackedLinear)
    assert isinstance(layer.mlp, PackedMixture)
    mixer, experts = FORMATS[layout.name]
    assert (layer.attention.output.matrix.format, layer.mlp.experts.format) == (mixer, experts)
    matrices = expert_matrices(layer.mlp.experts, 1)
    for matrix in (layer.attention.output.matrix, *matrices):
        weights = unpack(matrix, torch.float32)
        # A matrix of NVFP4 or FP8 has one scale of its own, up to half away from the middle.
        assert STANDARD_DEVIATION * 0.45 < float(weights.std()) < STANDARD_DEVIATION * 1.6
        assert bool(torch.isfinite(weights).all())


def test_one_seed_gives_one_model_and_another_seed_another() -> None:
    entry = TensorEntry("a.weight", "BF16", (8, 8), "", 0, 128)
    first, again, other = (SyntheticReader(seed).read(entry, CPU) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_stack_is_as_many_different_tensors() -> None:
    entries = [TensorEntry(f"{number}.weight", "F8_E4M3", (4, 8), "", 0, 32) for number in range(3)]
    stack = SyntheticReader().read_stack(entries, CPU)
    assert stack.shape == (3, 4, 8)
    assert not torch.equal(stack[0].float(), stack[1].float())


@pytest.mark.parametrize("name", ["x.weight_scale", "x.weight_scale_inv", "x.weight_scale_2"])
def test_scales_are_positive(name: str) -> None:
    dtype = "F8_E4M3" if name == "x.weight_scale" else "F32"
    scale = SyntheticReader().read(TensorEntry(name, dtype, (64, 8), "", 0, 512), CPU).float()
    assert bool((scale > 0).all())


def test_the_gated_norm_is_a_factor_and_the_others_are_offsets() -> None:
    reader = SyntheticReader()
    shape = (128,)
    factor = reader.read(
        TensorEntry("model.layers.0.linear_attn.norm.weight", "BF16", shape, "", 0, 256), CPU
    )
    offset = reader.read(TensorEntry("model.layers.0.input_layernorm.weight", "BF16", shape, "", 0, 256), CPU)
    assert float(factor.float().mean()) == pytest.approx(1.0, abs=0.02)
    assert float(offset.float().mean()) == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("part", [1, 2])
def test_experts_that_are_stored_differently_are_refused(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expert_stacks, "PART", part)
    mixed = PrecisionLayout("mixed", "", {(ModelPart.TRUNK, TensorGroup.ROUTED_EXPERT): Precision.BF16})
    named = layout_named("nvfp4")

    def storage_of(planned: PlannedTensor) -> Storage:
        return (mixed if ".experts.1." in planned.name else named).storage_of(planned)

    spec = sample_of(load_shape("qwen3.5-35b-a3b"))
    entries = synthetic_tensors(spec, named.expert_layouts(spec), storage_of)
    account = TensorAccount(SyntheticReader(), entries, CPU)
    with pytest.raises(AccountingError, match=r"experts 1 and on|experts\.1\.gate_proj"):
        load_model(spec, account, PACKED, 16, CPU, with_head=False)
