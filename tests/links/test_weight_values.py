"""Stored weights read as what they stand for, in every precision, whole or sampled."""

import math

import numpy as np
import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.checkpoint.precision import Precision, decide, group_by_module, module_precision
from draftproof.links.weight_values import read_module
from tests.support.checkpoints import (
    BF16,
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_TENSOR,
    MTP_NVFP4,
    MTP_NVFP4_COMPRESSED,
    NVFP4_COMPRESSED,
    NVFP4_ROUTED,
    CheckpointOptions,
    write_checkpoint,
)

RECIPES = [
    BF16,
    FP8_BLOCK,
    FP8_TENSOR,
    FP8_CHANNEL,
    NVFP4_ROUTED,
    NVFP4_COMPRESSED,
    MTP_NVFP4,
    MTP_NVFP4_COMPRESSED,
]


@pytest.fixture(scope="module", params=RECIPES, ids=lambda recipe: recipe.name)
def written(request, tmp_path_factory):
    options = CheckpointOptions(moe=True, vision=False, precision=request.param)
    return write_checkpoint(tmp_path_factory.mktemp("values") / "c", options)


def modules(written):
    checkpoint = open_checkpoint(str(written.folder))
    grouped = group_by_module(checkpoint.inventory.tensors.values())
    return checkpoint, [decide(module, leaves) for module, leaves in grouped.items()]


def test_every_weight_has_the_magnitude_that_its_files_stand_for(written):
    checkpoint, stored = modules(written)
    compared = 0
    for module in stored:
        name = module.module if module.module in written.tensors else f"{module.module}.weight"
        if module.weight is None or name not in written.tensors:
            continue
        values = read_module(checkpoint.source, module, None)
        truth = written.tensors[name].float().numpy()
        assert values.complete
        assert values.dequantised
        assert values.weight.count == truth.size
        assert values.weight.rms == pytest.approx(math.sqrt(np.mean(truth**2)), rel=1e-5)
        assert values.weight.maximum == pytest.approx(truth.max(), rel=1e-6)
        compared += 1
    assert compared > 100


def test_a_sample_reads_less_and_stands_for_the_whole(written):
    checkpoint, stored = modules(written)
    module = next(each for each in stored if each.module == "mtp.layers.0.self_attn.q_proj")
    whole = read_module(checkpoint.source, module, None)
    sample = read_module(checkpoint.source, module, 2048)
    assert not sample.complete
    assert sample.bytes_read < whole.bytes_read
    assert sample.weight.rms == pytest.approx(whole.weight.rms, rel=0.3)


def test_rows_of_the_sample_meet_their_own_scales(written):
    """With another row's scales, some part of a weight would exceed the extremes of the whole."""
    checkpoint, stored = modules(written)
    for module in stored:
        if module.weight is not None and len(module.weight.shape) == 2:
            whole = read_module(checkpoint.source, module, None)
            sample = read_module(checkpoint.source, module, 512)
            assert whole.weight.minimum <= sample.weight.minimum
            assert sample.weight.maximum <= whole.weight.maximum


def test_scales_are_measured_as_stored(tmp_path):
    written = write_checkpoint(
        tmp_path / "c", CheckpointOptions(moe=True, vision=False, precision=NVFP4_ROUTED)
    )
    checkpoint = open_checkpoint(str(written.folder))
    name = "model.language_model.layers.0.mlp.experts.0.up_proj"
    module = module_precision(name, checkpoint.inventory)
    assert module.precision is Precision.NVFP4_MODELOPT
    values = read_module(checkpoint.source, module, None)
    leaves = {scale.entry.name.removeprefix(f"{name}."): scale.statistics for scale in values.scales}
    assert set(leaves) == {"weight_scale", "weight_scale_2", "input_scale"}
    assert leaves["weight_scale"].maximum == written.stored[f"{name}.weight_scale"].float().max().item()
    assert leaves["weight_scale_2"].count == 1


def test_a_module_without_weight_has_no_values(tmp_path):
    written = write_checkpoint(tmp_path / "c", CheckpointOptions(vision=False, precision=FP8_TENSOR))
    checkpoint = open_checkpoint(str(written.folder))
    entry = checkpoint.inventory.tensors["model.language_model.layers.0.mlp.up_proj.weight_scale"]
    assert read_module(checkpoint.source, decide("m", {"weight_scale": entry}), None) is None
