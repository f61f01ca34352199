"""Quantised weights stand for the right numbers, in every precision, dialect and storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from draftproof.models.stored_linear import DenseBackend
from draftproof.models.weight_storage import WeightStorage
from tests.models.quantized import PROMPT, QUANTIZED, logits_of
from tests.models.reference import assert_same_logits, reference_logits, reference_model, write_dequantized
from tests.support.checkpoints import (
    BF16,
    FP32,
    NVFP4_COMPRESSED,
    CheckpointOptions,
    WrittenCheckpoint,
)
from tests.support.engines import load
from tests.support.faults import (
    copy_of,
    fill_tensor,
    rename_tensors,
)

Checkpoints = Callable[[CheckpointOptions], WrittenCheckpoint]


@pytest.fixture(scope="module")
def dequantized(
    checkpoint: Checkpoints, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, tuple[Tensor, Tensor]]]:
    """The same weights as float32 on disk: the folder, and our logits from it."""

    @cache
    def get(layout: str) -> tuple[Path, tuple[Tensor, Tensor]]:
        folder = tmp_path_factory.mktemp("dequantized", numbered=True) / "checkpoint"
        write_dequantized(checkpoint(QUANTIZED[layout]), folder)
        return folder, logits_of(load(folder))

    return get


@pytest.mark.parametrize("storage", WeightStorage)
@pytest.mark.parametrize("layout", QUANTIZED)
def test_quantised_weights_stand_for_their_real_numbers(
    checkpoint: Checkpoints,
    dequantized: Callable[[str], tuple[Path, tuple[Tensor, Tensor]]],
    layout: str,
    storage: WeightStorage,
) -> None:
    _, expected = dequantized(layout)
    found = logits_of(load(checkpoint(QUANTIZED[layout]).folder, storage=storage))
    for ours, real in zip(found, expected, strict=True):
        assert_same_logits(ours, real)


@pytest.mark.parametrize(
    "layout", ["fp8 block, moe", "fp8 tensor", "nvfp4 routed", "nvfp4 mixed", "nvfp4 compressed"]
)
def test_the_half_precision_backend_gives_the_same_numbers(
    checkpoint: Checkpoints, dequantized: Callable[[str], tuple[Path, tuple[Tensor, Tensor]]], layout: str
) -> None:
    from draftproof.kernels.half_linear import fbgemm

    if not fbgemm.is_available():
        pytest.skip("this build of torch has no FBGEMM")
    _, expected = dequantized(layout)
    found = logits_of(load(checkpoint(QUANTIZED[layout]).folder, backend=DenseBackend.FBGEMM_HALF))
    for ours, real in zip(found, expected, strict=True):
        assert_same_logits(ours, real)


@pytest.mark.parametrize(
    "layout", ["fp8 block, qwen3-next", "nvfp4 mixed, dense", "nvfp4 routed, own scales"]
)
def test_transformers_agrees_on_the_real_numbers(
    dequantized: Callable[[str], tuple[Path, tuple[Tensor, Tensor]]], layout: str
) -> None:
    folder, (target, _) = dequantized(layout)
    expected = reference_logits(reference_model(folder), torch.tensor([PROMPT[:-1]]))[0]
    assert_same_logits(target, expected)


def test_quantisation_changed_something(checkpoint: Checkpoints) -> None:
    """Otherwise the comparisons above would compare a thing with itself."""
    exact = logits_of(load(checkpoint(CheckpointOptions(moe=True, precision=FP32)).folder))
    for layout in ("fp8 channel", "nvfp4 routed and shared", "nvfp4 compressed"):
        found = logits_of(load(checkpoint(QUANTIZED[layout]).folder))
        assert (found[0] - exact[0]).abs().max() > 0.01


def test_global_scales_of_gate_and_up_may_differ(checkpoint: Checkpoints, tmp_path: Path) -> None:
    """0.010 beside 0.013, as released checkpoints have them: one scale for both halves would be garbage."""
    options = replace(QUANTIZED["nvfp4 routed, own scales"], seed=5)
    written = checkpoint(options)
    folder = copy_of(written.folder, tmp_path / "unequal")
    tensors = dict(written.tensors)
    for expert in range(options.sizes.experts):
        stem = f"{options.text_prefix}layers.1.mlp.experts.{expert}.up_proj."
        scale = written.stored[f"{stem}weight_scale_2"]
        fill_tensor(folder, f"{stem}weight_scale_2", float(scale) * 1.3)
        tensors[f"{stem}weight"] = tensors[f"{stem}weight"] * 1.3
    real = write_dequantized(replace(written, tensors=tensors), tmp_path / "real")
    expected, untouched = logits_of(load(real)), logits_of(load(written.folder))
    assert (expected[0] - untouched[0]).abs().max() > 0.01
    for storage in WeightStorage:
        assert_same_logits(logits_of(load(folder, storage=storage))[0], expected[0])


def test_both_dialects_of_nvfp4_give_the_same_model(checkpoint: Checkpoints) -> None:
    """Stored as multiplier or as divisor: equal up to the rounding of the reciprocal."""
    modelopt = replace(QUANTIZED["nvfp4 routed and shared"], shared_scales=False)
    divisors = replace(
        NVFP4_COMPRESSED,
        encodings={
            group: kind for group, kind in NVFP4_COMPRESSED.encodings.items() if group.value != "attention"
        },
    )
    compressed = replace(modelopt, precision=divisors)
    for storage in WeightStorage:
        first, second = (
            logits_of(load(checkpoint(options).folder, storage=storage)) for options in (modelopt, compressed)
        )
        assert_same_logits(second[0], first[0])


def test_block_scales_may_have_modelopts_name(checkpoint: Checkpoints, tmp_path: Path) -> None:
    """`weight_scale` in two dimensions, as its FP8_PB_WO writes it, instead of `weight_scale_inv`."""
    written = checkpoint(QUANTIZED["fp8 block"])
    folder = copy_of(written.folder, tmp_path / "renamed")
    rename_tensors(folder, lambda name: name.replace("weight_scale_inv", "weight_scale"))
    for ours, other in zip(logits_of(load(folder)), logits_of(load(written.folder)), strict=True):
        assert torch.equal(ours, other)


def test_bf16_and_fp32_storage_of_the_same_numbers_are_one_model(
    checkpoint: Checkpoints, tmp_path: Path
) -> None:
    written = checkpoint(CheckpointOptions(moe=True, precision=BF16))
    real = write_dequantized(written, tmp_path / "wide")
    for ours, other in zip(logits_of(load(written.folder)), logits_of(load(real)), strict=True):
        assert torch.equal(ours, other)
