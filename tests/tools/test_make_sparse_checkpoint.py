"""The sparse writer lays out what the generator of tiny checkpoints writes, and the flagship in full."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from safetensors import safe_open

from tests.support.checkpoints import (
    ALL_PRECISIONS,
    BF16,
    FP8_BLOCK,
    FP8_BLOCK_EXPERTS,
    NVFP4_MIXED,
    NVFP4_ROUTED,
    CheckpointOptions,
    ExpertLayout,
    Family,
)
from tests.support.raw_safetensors import read_safetensors
from tools.make_sparse_checkpoint import (
    PRECISIONS,
    first_release_excludes,
    flagship_config,
    main,
    make,
    options_from_config,
    stored_tensors,
)


def layout_on_disk(folder):
    return {
        name: (tensor.dtype, tensor.shape)
        for path in folder.glob("*.safetensors")
        for name, tensor in read_safetensors(path).items()
    }


@pytest.mark.parametrize("precision", ALL_PRECISIONS, ids=lambda precision: precision.name)
@pytest.mark.parametrize("moe", [False, True], ids=["dense", "moe"])
def test_layout_equals_that_of_a_checkpoint_with_values(checkpoint, precision, moe):
    options = CheckpointOptions(moe=moe, precision=precision)
    expected = layout_on_disk(checkpoint(options).folder)
    assert {t.name: (t.dtype, t.shape) for t in stored_tensors(options)} == expected


@pytest.mark.parametrize(
    "options",
    [
        CheckpointOptions(tied=True, recurrent_float32=False),
        CheckpointOptions(moe=True, recurrent_float32=False),
        CheckpointOptions(Family.QWEN3_5_TEXT, mtp=False, vision=False, recurrent_float32=False),
        CheckpointOptions(Family.QWEN3_NEXT, moe=True, vision=False, recurrent_float32=False),
    ],
    ids=lambda options: f"{options.family.value}-moe={options.moe}",
)
def test_a_config_describes_its_own_layout(checkpoint, options):
    read = options_from_config(checkpoint(options).config, BF16)
    assert stored_tensors(read) == stored_tensors(options)


def test_files_are_sparse_well_formed_and_indexed(checkpoint, tmp_path):
    source = checkpoint(CheckpointOptions(moe=True, precision=NVFP4_ROUTED, recurrent_float32=False))
    written = make(tmp_path / "sparse", dict(source.config), NVFP4_ROUTED, shard_bytes=200_000)
    assert len(written.files) > 3
    index = json.loads((tmp_path / "sparse" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == written.size
    found = {}
    for path in written.files:
        with safe_open(path, "pt") as file:
            found |= dict.fromkeys(file.keys(), path.name)
    assert found == index["weight_map"]
    assert layout_on_disk(tmp_path / "sparse") == layout_on_disk(source.folder)


def test_no_space_is_taken_by_weights(tmp_path):
    config = flagship_config()
    config["text_config"] |= {"num_hidden_layers": 4, "num_experts": 4}
    written = make(tmp_path / "sparse", config, NVFP4_ROUTED, shard_bytes=10**12)
    (path,) = written.files
    assert path.stat().st_size > 3e9
    assert path.stat().st_blocks * 512 < 1e6


def test_the_flagship_has_its_published_layout():
    options = options_from_config(flagship_config(), PRECISIONS["nvfp4-routed"])
    tensors = stored_tensors(options)
    assert len(tensors) == 371_444
    assert sum(tensor.name.startswith("mtp.") for tensor in tensors) == 1_553
    assert all(t.dtype == "BF16" for t in tensors if t.name.startswith("mtp."))
    assert sum(tensor.size for tensor in tensors) == pytest.approx(251.1e9, rel=1e-3)
    excludes = first_release_excludes(tensor.name for tensor in tensors)
    assert len(excludes) == 1 + 3 * 60 + 2
    assert excludes[-1] == "mtp.layers.0*"


@pytest.mark.parametrize(
    ("name", "precision", "changes", "tensors", "size"),
    [
        ("Qwen_Qwen3.5-9B", BF16, {"recurrent_float32": True}, 775, 19_306_216_416),
        ("Qwen_Qwen3.8-27B", BF16, {}, 1_199, 55_562_855_904),
        ("Qwen_Qwen3.6-35B-A3B", BF16, {"mtp_experts": ExpertLayout.FUSED}, 1_045, None),
        ("Qwen_Qwen3.6-35B-A3B", NVFP4_MIXED, {"mtp_experts": ExpertLayout.FUSED}, 124_468, None),
        ("Qwen_Qwen3.6-35B-A3B-FP8", FP8_BLOCK, {}, 64_196, None),
        ("Qwen_Qwen3.8-2.4T-A95B-FP8", FP8_BLOCK_EXPERTS, {}, 287_119, 2_496_066_252_544),
    ],
)
def test_published_totals(public_config, name, precision, changes, tensors, size):
    options = options_from_config(public_config(name), precision.with_block(128, 128))
    found = stored_tensors(replace(options, **changes))
    assert len(found) == tensors
    if size is not None:
        assert sum(tensor.size for tensor in found) == size


def test_command_line(checkpoint, tmp_path, capsys):
    config = checkpoint(CheckpointOptions(moe=True)).folder / "config.json"
    target = tmp_path / "sparse"
    arguments = [
        str(target),
        "--config",
        str(config),
        "--precision",
        "fp8-block",
        "--shard-gigabytes",
        "0.0005",
    ]
    assert main(arguments) == 0
    assert "sparse files" in capsys.readouterr().out
    assert json.loads((target / "config.json").read_text())["quantization_config"]["quant_method"] == "fp8"
    assert main(arguments) == 2
    assert "not empty" in capsys.readouterr().err
    (tmp_path / "other.json").write_text('{"model_type": "llama"}')
    assert main([str(tmp_path / "new"), "--config", str(tmp_path / "other.json")]) == 2
    assert "llama" in capsys.readouterr().err


def test_help(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert "--shard-gigabytes" in capsys.readouterr().out
