"""Each fault breaks exactly what it says."""

from __future__ import annotations

import json

import numpy
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from tests.support import faults
from tests.support.checkpoints import FP8_BLOCK, NVFP4_COMPRESSED, NVFP4_ROUTED, CheckpointOptions
from tests.support.raw_safetensors import RawTensor, read_safetensors

SHARDED = CheckpointOptions(shards=3)
Q_PROJ = "mtp.layers.0.self_attn.q_proj.weight"


@pytest.fixture
def folder(checkpoint, tmp_path):
    return faults.copy_of(checkpoint(SHARDED).folder, tmp_path / "broken")


def load(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
    return tensors


def changes(folder, intact):
    """(names gone, names new, names whose content differs) against the intact tensors."""
    now = load(folder)
    both = now.keys() & intact.keys()
    differ = {
        name
        for name in both
        if now[name].shape != intact[name].shape
        or now[name].dtype != intact[name].dtype
        or not torch.equal(now[name].float(), intact[name].float())
    }
    return intact.keys() - now.keys(), now.keys() - intact.keys(), differ


def index_names(folder):
    return json.loads((folder / faults.INDEX).read_text())["weight_map"].keys()


@pytest.fixture
def intact(checkpoint):
    return load(checkpoint(SHARDED).folder)


def test_shared_checkpoints_refuse_every_fault(checkpoint):
    shared = checkpoint(SHARDED).folder
    for fault in (
        faults.strip_mtp,
        faults.flip_tied_flag,
        lambda folder: faults.delete_shard(folder, "model-00001-of-00003.safetensors"),
    ):
        with pytest.raises(PermissionError, match="copy_of"):
            fault(shared)


def test_a_rewritten_file_is_still_read_by_safetensors(folder, intact):
    faults.fill_tensor(folder, "mtp.norm.weight", 0.0)
    assert changes(folder, intact) == (set(), set(), {"mtp.norm.weight"})


def test_strip_mtp_keeps_the_declaration(folder, intact):
    faults.strip_mtp(folder)
    gone, new, differ = changes(folder, intact)
    assert len(gone) == 15
    assert all(name.startswith("mtp.") for name in gone)
    assert (new, differ) == (set(), set())
    assert index_names(folder) == intact.keys() - gone
    assert json.loads((folder / "config.json").read_text())["text_config"]["mtp_num_hidden_layers"] == 1


def test_drop_tensors_and_its_index_lying_variant(folder, intact):
    faults.drop_tensors(folder, Q_PROJ)
    faults.drop_from_shard_only(folder, "mtp.norm.weight")
    assert changes(folder, intact) == ({Q_PROJ, "mtp.norm.weight"}, set(), set())
    assert index_names(folder) == intact.keys() - {Q_PROJ}
    with pytest.raises(KeyError, match="no such tensors"):
        faults.drop_tensors(folder, Q_PROJ)


def test_reshape_tensor(folder):
    for shape in ([192, 32], [10, 7], [400, 64]):
        faults.reshape_tensor(folder, Q_PROJ, shape)
        assert list(load(folder)[Q_PROJ].shape) == shape


@pytest.mark.parametrize("value", [0.0, 0.5, -1.0])
def test_fill_tensor(folder, value):
    faults.fill_tensor(folder, Q_PROJ, value)
    tensor = load(folder)[Q_PROJ]
    assert tensor.dtype == torch.bfloat16
    assert (tensor == value).all()


def test_set_element_puts_one_nan(folder):
    faults.set_element(folder, Q_PROJ, float("nan"), position=70)
    tensor = load(folder)[Q_PROJ]
    assert torch.isnan(tensor).sum() == 1
    assert torch.isnan(tensor[1, 6])


@pytest.mark.parametrize("value", [0.0, float("nan"), -1.0])
def test_broken_scales_of_every_dtype(checkpoint, tmp_path, value):
    folder = faults.copy_of(checkpoint(CheckpointOptions(precision=NVFP4_ROUTED)).folder, tmp_path / "broken")
    stem = "model.language_model.layers.0.mlp.gate_proj"
    for name in ("weight_scale", "weight_scale_2"):
        faults.fill_tensor(folder, f"{stem}.{name}", value)
        scale = load(folder)[f"{stem}.{name}"].float().numpy()
        assert numpy.array_equal(scale, numpy.full_like(scale, value), equal_nan=True)


def test_faults_of_files(folder):
    first, second, third = faults.weight_files(folder)
    size = (folder / second).stat().st_size
    faults.delete_shard(folder, first)
    faults.truncate_file(folder, second)
    faults.append_bytes(folder, third, b"abc")
    assert faults.weight_files(folder) == [second, third]
    assert (folder / second).stat().st_size == size - 1
    for broken in (second, third):
        with pytest.raises(SafetensorError), safe_open(folder / broken, "pt"):
            pass


def test_stray_file_and_duplicate_tensor(folder, intact):
    faults.add_stray_file(folder, {"lm_head.weight": RawTensor("U8", (2, 3), b"abcdef")})
    assert "model-q4.safetensors" in faults.weight_files(folder)
    last = faults.weight_files(folder)[-1]
    faults.duplicate_tensor(folder, "model.language_model.embed_tokens.weight", last)
    holders = [
        file
        for file in faults.weight_files(folder)
        if "model.language_model.embed_tokens.weight" in read_safetensors(folder / file)
    ]
    assert len(holders) == 2
    assert index_names(folder) == intact.keys()


def test_move_mtp_to_side_file(folder, intact):
    faults.move_mtp_to_side_file(folder)
    assert changes(folder, intact) == (set(), set(), set())
    assert all(name.startswith("mtp.") for name in read_safetensors(folder / "mtp.safetensors"))
    assert not any(name.startswith("mtp.") for name in index_names(folder))


def test_rename_tensors(folder, intact):
    faults.rename_tensors(folder, lambda name: f"model.{name}" if name.startswith("mtp.") else name)
    gone, new, _ = changes(folder, intact)
    assert len(gone) == len(new) == 15
    assert all(name.startswith("model.mtp.") for name in new)
    assert index_names(folder) == load(folder).keys()


def test_config_fields(folder):
    def config():
        return json.loads((folder / "config.json").read_text())

    faults.set_config(folder, "text_config.mtp_num_hidden_layers", 2)
    faults.set_config(folder, "extra.deep", [1])
    assert config()["text_config"]["mtp_num_hidden_layers"] == 2
    assert config()["extra"] == {"deep": [1]}
    faults.remove_config(folder, "text_config.mtp_num_hidden_layers")
    assert "mtp_num_hidden_layers" not in config()["text_config"]
    faults.flip_tied_flag(folder)
    assert config()["tie_word_embeddings"] is True


def test_set_exclude_list_changes_every_copy(checkpoint, tmp_path):
    for number, (precision, places) in enumerate(
        [
            (NVFP4_ROUTED, {"config.json": "ignore", "hf_quant_config.json": "exclude_modules"}),
            (FP8_BLOCK, {"config.json": "modules_to_not_convert"}),
            (NVFP4_COMPRESSED, {"config.json": "ignore"}),
        ]
    ):
        source = checkpoint(CheckpointOptions(precision=precision)).folder
        folder = faults.copy_of(source, tmp_path / str(number))
        faults.set_exclude_list(folder, ["mtp.layers.0*"])
        for file, key in places.items():
            content = json.loads((folder / file).read_text())
            section = content.get("quantization_config") or content["quantization"]
            assert section[key] == ["mtp.layers.0*"]


def test_remove_lm_head_and_drop_scale(checkpoint, tmp_path):
    folder = faults.copy_of(checkpoint(CheckpointOptions(precision=FP8_BLOCK)).folder, tmp_path / "broken")
    intact = load(folder)
    faults.remove_lm_head(folder)
    faults.drop_scale(folder, Q_PROJ)
    assert changes(folder, intact) == ({"lm_head.weight", f"{Q_PROJ}_scale_inv"}, set(), set())


def test_copy_trunk_layer_into_mtp(folder, intact):
    faults.copy_trunk_layer_into_mtp(folder, 3)
    gone, new, differ = changes(folder, intact)
    assert (gone, new) == (set(), set())
    assert differ == {name for name in intact if name.startswith("mtp.layers.0.")}
    now = load(folder)
    assert torch.equal(now[Q_PROJ], intact["model.language_model.layers.3.self_attn.q_proj.weight"])


def test_invert_global_scales(checkpoint, tmp_path):
    for precision, end in ((NVFP4_ROUTED, ".weight_scale_2"), (NVFP4_COMPRESSED, ".weight_global_scale")):
        source = checkpoint(CheckpointOptions(precision=precision)).folder
        folder = faults.copy_of(source, tmp_path / precision.name)
        intact = load(folder)
        faults.invert_global_scales(folder)
        _, _, differ = changes(folder, intact)
        assert differ == {name for name in intact if name.endswith(end)}
        now = load(folder)
        for name in differ:
            torch.testing.assert_close(now[name], intact[name].reciprocal())


def test_bake_one_into_mtp_layer_norms(folder, intact):
    faults.bake_one_into_mtp_layer_norms(folder)
    names = {f"mtp.layers.0.{name}.weight" for name in ("input_layernorm", "post_attention_layernorm")}
    assert changes(folder, intact) == (set(), set(), names)
    for name in names:
        torch.testing.assert_close(load(folder)[name], intact[name] + 1, atol=0.01, rtol=0)
