"""A kernel that gives NaN or wrong numbers stops the start, with its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from draftproof.bench.precisions import layout_named
from draftproof.bench.shapes import load_shape, sample_of
from draftproof.bench.subject import load_synthetic
from draftproof.device.self_check import self_check
from draftproof.device.weights import DeviceModel, device_model
from draftproof.errors import EngineFault
from draftproof.kernels.experts_step import reference as experts
from draftproof.kernels.packed_linear import reference as linear
from draftproof.kernels.select import StepKernels, kernels_for

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> DeviceModel:
    loaded = load_synthetic(sample_of(load_shape("qwen3.5-35b-a3b")), layout_named("nvfp4-3.6"), 16, CPU)
    with torch.inference_mode():
        return device_model(loaded.target, loaded.head)


@pytest.fixture
def kernels() -> StepKernels:
    return kernels_for(CPU)


def test_definitions_agree_with_themselves_on_every_kind_of_weight(
    kernels: StepKernels, model: DeviceModel
) -> None:
    checked = self_check(kernels, model)
    assert max(call.error for call in checked) == 0
    subjects = " ".join(call.subject for call in checked)
    for kind in ("fp8 [", "bf16 [", "nvfp4 [64, 2048]", "nvfp4, 2 of 512 x 2048, 4 rows"):
        assert kind in subjects


@pytest.mark.parametrize(("factor", "words"), [(float("nan"), "nan"), (1.2, r"error \d")])
def test_a_wrong_product_is_named(
    kernels: StepKernels, model: DeviceModel, factor: float, words: str
) -> None:
    def broken(x: Tensor, matrix: Any, *, out: Tensor, **rest: Any) -> None:
        linear.packed_linear(x, matrix, out=out, **rest)
        if matrix.rows == 64:
            out[0, 3] *= factor

    with pytest.raises(
        EngineFault, match=rf"packed_linear on cpu is wrong: nvfp4 \[64, 2048\].*{words}"
    ) as caught:
        self_check(replace(kernels, packed_linear=broken), model)
    assert caught.value.exit_code == 1


def test_a_wrong_expert_is_named(kernels: StepKernels, model: DeviceModel) -> None:
    def broken(residual: Tensor, *rest: Any) -> None:
        before = residual.clone()
        experts.experts_step(residual, *rest)
        residual.copy_(before + (residual - before) * 1.5)

    with pytest.raises(EngineFault, match="experts_step on cpu is wrong"):
        self_check(replace(kernels, experts_step=broken), model)
