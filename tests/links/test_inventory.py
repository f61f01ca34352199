"""What `inspect` shows: the same facts for every layout, and something for every checkpoint."""

import json

import pytest

from draftproof.checkpoint.checkpoint import open_checkpoint
from draftproof.errors import UsageError
from draftproof.links.inventory import take_stock
from draftproof.links.tensor_facts import tensors_named
from tests.support.checkpoints import (
    FP8_BLOCK,
    MTP_NVFP4,
    NVFP4_ROUTED,
    CheckpointOptions,
    Family,
    write_checkpoint,
)
from tests.support.faults import copy_of, fill_tensor, set_config, strip_mtp, truncate_file


@pytest.fixture(scope="module")
def nvfp4(tmp_path_factory):
    options = CheckpointOptions(moe=True, precision=NVFP4_ROUTED, shards=3)
    return write_checkpoint(tmp_path_factory.mktemp("stock") / "nvfp4", options)


def stock(folder):
    return take_stock(open_checkpoint(str(folder)))


@pytest.mark.parametrize(
    "options",
    [
        CheckpointOptions(),
        CheckpointOptions(moe=True),
        CheckpointOptions(family=Family.QWEN3_NEXT, moe=True),
        CheckpointOptions(moe=True, precision=NVFP4_ROUTED, mtp_precision=MTP_NVFP4),
        CheckpointOptions(precision=FP8_BLOCK, kv_scales=True),
    ],
    ids=["dense", "moe", "next", "nvfp4 head", "fp8"],
)
def test_every_tensor_is_in_exactly_one_group(tmp_path, options):
    written = write_checkpoint(tmp_path / "c", options)
    found = stock(written.folder)
    assert sum(group.tensors for group in found.groups) == found.tensors == len(written.stored)
    size = sum(tensor.numel() * tensor.element_size() for tensor in written.stored.values())
    assert sum(group.size for group in found.groups) == size
    assert found.head.tensors == len(written.mtp_names)
    assert found.head.present == found.head.expected


def test_the_head_and_its_precision(nvfp4):
    found = stock(nvfp4.folder)
    assert found.family == "Qwen3.5/3.6/3.8"
    assert found.head.declared_layers == 1
    assert found.head.declared_at.field == "text_config.mtp_num_hidden_layers"
    assert (found.head.layout, found.layout) == ("experts one by one", "experts one by one")
    assert {group.precision for group in found.groups if group.part == "head"} == {"BF16"}
    experts = next(g for g in found.groups if (g.part, g.module) == ("target", "routed experts"))
    assert (experts.precision, experts.tensors) == ("NVFP4 (ModelOpt)", 384)
    assert found.quantization[0].startswith("config.json: modelopt NVFP4")
    assert dict(found.dimensions)["parameters"].endswith("in the MTP head")


def test_anomalies_come_from_structure_and_never_from_values(nvfp4, tmp_path):
    folder = copy_of(nvfp4.folder, tmp_path / "c")
    fill_tensor(folder, "mtp.fc.weight", 0.0)
    assert not any("zero" in note.text for note in stock(folder).anomalies)
    strip_mtp(folder)
    assert any("0 of 41 tensors" in note.text for note in stock(folder).anomalies)


def test_a_damaged_checkpoint_is_still_described(nvfp4, tmp_path):
    folder = copy_of(nvfp4.folder, tmp_path / "c")
    truncate_file(folder, "model-00003-of-00003.safetensors")
    (folder / "config.json").write_text("{")
    found = stock(folder)
    assert found.tensors == len(nvfp4.stored)
    assert found.family == ""
    assert found.head.present > 0
    assert any("config.json" in note.text for note in found.anomalies)


def test_an_unknown_architecture_is_described_by_its_tensors(nvfp4, tmp_path):
    folder = copy_of(nvfp4.folder, tmp_path / "c")
    set_config(folder, "model_type", "something")
    set_config(folder, "text_config.model_type", "something_text")
    set_config(folder, "architectures", ["SomethingForCausalLM"])
    found = stock(folder)
    assert sum(group.tensors for group in found.groups) == found.tensors
    assert found.head.expected is None


def test_another_family_is_described(public_config, tmp_path):
    from tests.support.raw_safetensors import RawTensor, write_safetensors

    (tmp_path / "config.json").write_text(json.dumps(public_config("zai-org_GLM-4.5-Air")))
    names = ("model.layers.0.mlp.up_proj.weight", "model.layers.46.eh_proj.weight", "model.norm.weight")
    write_safetensors(
        tmp_path / "model.safetensors", {n: RawTensor("BF16", (1, 2), b"\1\2\3\4") for n in names}
    )
    found = stock(tmp_path)
    assert "GLM-4.5" in found.family
    assert (found.head.declared_layers, found.head.tensors) == (1, 1)
    assert [(g.part, g.tensors) for g in found.groups] == [("target", 2), ("head", 1)]


def test_a_tensor_by_name_has_figures_of_real_values(nvfp4):
    checkpoint = open_checkpoint(str(nvfp4.folder))
    name = "model.language_model.layers.0.mlp.experts.0.up_proj"
    found = tensors_named(checkpoint, f"{name}.weight")
    figures = dict(found.shown[0].figures)
    truth = nvfp4.tensors[f"{name}.weight"]
    assert found.total == 1
    assert found.shown[0].values_of == "all 3,072, dequantised"
    assert figures["largest"] == pytest.approx(truth.max().item())
    assert figures["RMS"] == pytest.approx(truth.square().mean().sqrt().item())
    scale = tensors_named(checkpoint, f"{name}.weight_scale_2").shown[0]
    assert dict(scale.figures) == {"value": pytest.approx(nvfp4.stored[f"{name}.weight_scale_2"].item())}


def test_a_part_of_a_name_finds_all_and_shows_the_first(nvfp4):
    found = tensors_named(open_checkpoint(str(nvfp4.folder)), "experts.")
    assert found.total == 408
    assert len(found.shown) == 20


def test_a_name_that_is_not_there_is_a_usage_error(nvfp4):
    with pytest.raises(UsageError, match="'nonsense'"):
        tensors_named(open_checkpoint(str(nvfp4.folder)), "nonsense")
