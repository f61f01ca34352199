"""Writes a checkpoint with the full layout of a large model and no weights: sparse files, real headers.

    python -m tools.make_sparse_checkpoint /tmp/flagship
    python -m tools.make_sparse_checkpoint /tmp/other --config path/to/config.json --precision bf16

Everything that reads names, shapes, dtypes, sizes and configs (inspect, verify, plan, remote reads) can be
tried on the flagship this way: 250 GB to look at, about 90 MB on disk (headers and index), seconds to make.
All values are zero.

Names and shapes come from the generator of tiny checkpoints in tests/support, which transformers checks. The
tables of the package under test take no part, so that they can be compared with the result.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import checkpoint_precision
from tests.support.checkpoint_options import CheckpointOptions, Family, Sizes
from tests.support.checkpoint_precision import Precision, StoredTensor, stored_layout
from tests.support.checkpoint_quantization_config import hf_quant_config, quantization_config

PRECISIONS = {
    precision.name.replace("_", "-"): precision.with_block(128, 128)
    for precision in checkpoint_precision.ALL_PRECISIONS
}


@dataclass(frozen=True)
class SparseCheckpoint:
    """What was written: the weight files, how many tensors they hold, and their size in bytes."""

    files: tuple[Path, ...]
    tensors: int
    size: int


def flagship_config() -> dict[str, Any]:
    """The config of nvidia/Qwen3.5-397B-A17B-NVFP4's first revision: 60 layers, 512 experts, vision, MTP."""
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "image_token_id": 248056,
        "model_type": "qwen3_5_moe",
        "text_config": _flagship_text(),
        "tie_word_embeddings": False,
        "transformers_version": "4.57.0.dev0",
        "video_token_id": 248057,
        "vision_config": _flagship_vision(),
        "vision_end_token_id": 248054,
        "vision_start_token_id": 248053,
    }


def _flagship_text() -> dict[str, Any]:
    layers, interval = 60, 4
    return {
        "attention_bias": False,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": 248044,
        "full_attention_interval": interval,
        "head_dim": 256,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "layer_types": [
            "linear_attention" if (index + 1) % interval else "full_attention" for index in range(layers)
        ],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 64,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "mlp_only_layers": [],
        "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": 1024,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": 32,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "num_hidden_layers": layers,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000000,
            "rope_type": "default",
        },
        "shared_expert_intermediate_size": 1024,
        "vocab_size": 248320,
    }


def _flagship_vision() -> dict[str, Any]:
    return {
        "deepstack_visual_indexes": [],
        "depth": 27,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": 1152,
        "in_channels": 3,
        "intermediate_size": 4304,
        "model_type": "qwen3_5_moe",
        "num_heads": 16,
        "num_position_embeddings": 2304,
        "out_hidden_size": 4096,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }


def options_from_config(config: dict[str, Any], precision: Precision) -> CheckpointOptions:
    """The layout that a config of the Qwen3.5 family or Qwen3-Next describes.

    Raises:
        KeyError: a field that the layout depends on is missing.
        ValueError: the config is of another family.
    """
    text = config.get("text_config", config)
    vision = config.get("vision_config")
    family = _family(str(config.get("model_type")))
    moe = "num_experts" in text
    return CheckpointOptions(
        family,
        moe=moe,
        sizes=_sizes(text, vision, moe=moe),
        precision=precision,
        mtp=family is Family.QWEN3_NEXT or text.get("mtp_num_hidden_layers", 0) > 0,
        tied=text.get("tie_word_embeddings", config.get("tie_word_embeddings", False)),
        vision=vision is not None,
        recurrent_float32=False,
    )


def stored_tensors(options: CheckpointOptions) -> list[StoredTensor]:
    """Every tensor on disk, in the order of the model."""
    from tests.support.checkpoint_weights import disk_shapes

    scale_inv_dtype = {"bfloat16": "BF16", "float32": "F32"}[options.scale_inv_dtype]
    tensors: list[StoredTensor] = []
    for name, shape in disk_shapes(options).items():
        if options.keeps_float32(name):
            tensors.append(StoredTensor(name, "F32", shape))
        else:
            tensors += stored_layout(name, shape, options.recipe, scale_inv_dtype=scale_inv_dtype)
    return tensors


def first_release_excludes(names: Iterable[str]) -> list[str]:
    """`exclude_modules` as the first NVFP4 releases have it, which is less than what they leave in BF16.

    Attention, shared experts, lm_head, the tower and the head's layer are listed; mtp.fc and the routers are
    not.

    Args:
        names: of all tensors of the trunk.
    """
    patterns = ["lm_head"]
    for name in names:
        stem, found, _ = name.partition(".q_proj.")
        if not found:
            stem, found, _ = name.partition(".in_proj_qkv.")
        if found and not name.startswith("mtp."):
            layer = stem.rpartition(".")[0]
            patterns += [f"{stem}*", f"{layer}.mlp.shared_expert*", f"{layer}.mlp.shared_expert_gate"]
    return [*patterns, "model.visual*", "mtp.layers.0*"]


def make(folder: Path, config: dict[str, Any], precision: Precision, shard_bytes: int) -> SparseCheckpoint:
    """Writes a sparse checkpoint of the model that a config describes, stored in a precision.

    Args:
        folder: created if absent.
        config: content of a config.json; its own quantization_config, if any, is replaced.
        precision: how the tensors are stored.
        shard_bytes: a file ends before the tensor that would make it larger than this.

    Raises:
        FileExistsError: the folder is not empty.
    """
    options = options_from_config(config, precision)
    tensors = stored_tensors(options)
    names = [tensor.name for tensor in tensors if tensor.name.endswith(("weight", "_proj"))]
    configs = {"config.json": {key: value for key, value in config.items() if key != "quantization_config"}}
    inline, own = quantization_config(precision, names), hf_quant_config(precision, names)
    if inline is not None:
        configs["config.json"]["quantization_config"] = inline
    if inline is not None and own is not None:
        configs["hf_quant_config.json"] = own
        if own["quantization"]["quant_algo"] == "NVFP4":
            inline["ignore"] = own["quantization"]["exclude_modules"] = first_release_excludes(names)
    return write_sparse_checkpoint(folder, configs, tensors, shard_bytes)


def write_sparse_checkpoint(
    folder: Path, configs: dict[str, dict[str, Any]], tensors: Iterable[StoredTensor], shard_bytes: int
) -> SparseCheckpoint:
    """Writes weight files, index and config files into a new or empty folder.

    Args:
        folder: created if absent.
        configs: JSON content by file name.
        tensors: every tensor on disk, in order.
        shard_bytes: a file ends before the tensor that would make it larger than this.

    Raises:
        FileExistsError: the folder is not empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    shards = list(_into_shards(tensors, shard_bytes))
    weight_map: dict[str, str] = {}
    files = []
    for number, shard in enumerate(shards, start=1):
        path = folder / f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_sparse_file(path, shard)
        weight_map.update((tensor.name, path.name) for tensor in shard)
        files.append(path)
    size = sum(tensor.size for shard in shards for tensor in shard)
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    for name, content in {**configs, "model.safetensors.index.json": index}.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return SparseCheckpoint(tuple(files), len(weight_map), size)


def _into_shards(tensors: Iterable[StoredTensor], shard_bytes: int) -> Iterator[list[StoredTensor]]:
    shard: list[StoredTensor] = []
    size = 0
    for tensor in tensors:
        if shard and size + tensor.size > shard_bytes:
            yield shard
            shard, size = [], 0
        shard.append(tensor)
        size += tensor.size
    if shard:
        yield shard


def _write_sparse_file(path: Path, tensors: Sequence[StoredTensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.size
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": (start, end),
        }
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        os.truncate(file.fileno(), 8 + len(encoded) + end)


def _family(model_type: str) -> Family:
    if model_type == "qwen3_next":
        return Family.QWEN3_NEXT
    if model_type in ("qwen3_5_text", "qwen3_5_moe_text"):
        return Family.QWEN3_5_TEXT
    if model_type in ("qwen3_5", "qwen3_5_moe"):
        return Family.QWEN3_5
    raise ValueError(f"model_type {model_type!r} is not of the Qwen3.5 family")


def _sizes(text: dict[str, Any], vision: dict[str, Any] | None, *, moe: bool) -> Sizes:
    mlp = (
        {
            "experts": text["num_experts"],
            "experts_per_token": text["num_experts_per_tok"],
            "expert_intermediate": text["moe_intermediate_size"],
            "shared_intermediate": text["shared_expert_intermediate_size"],
        }
        if moe
        else {"intermediate": text["intermediate_size"]}
    )
    tower = (
        {
            "vision_depth": vision["depth"],
            "vision_hidden": vision["hidden_size"],
            "vision_intermediate": vision["intermediate_size"],
            "vision_heads": vision["num_heads"],
            "vision_patch": vision["patch_size"],
            "vision_positions": vision["num_position_embeddings"],
        }
        if vision
        else {}
    )
    return Sizes(
        hidden=text["hidden_size"],
        vocab=text["vocab_size"],
        layers=text["num_hidden_layers"],
        full_attention_interval=text["full_attention_interval"],
        heads=text["num_attention_heads"],
        key_value_heads=text["num_key_value_heads"],
        head_dim=text["head_dim"],
        linear_key_heads=text["linear_num_key_heads"],
        linear_value_heads=text["linear_num_value_heads"],
        linear_key_head_dim=text["linear_key_head_dim"],
        linear_value_head_dim=text["linear_value_head_dim"],
        conv_kernel=text["linear_conv_kernel_dim"],
        **mlp,
        **tower,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.make_sparse_checkpoint",
        description="Write a checkpoint with the full layout of a large model in sparse files: no weights.",
    )
    parser.add_argument("folder", type=Path, help="where to write; must be empty or absent")
    parser.add_argument(
        "--config", type=Path, help="config.json of the model (default: Qwen3.5-397B-A17B, built in)"
    )
    parser.add_argument(
        "--precision", choices=sorted(PRECISIONS), default="nvfp4-routed", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--shard-gigabytes", type=float, default=6.5, help="largest size of a file (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    config = json.loads(options.config.read_text()) if options.config else flagship_config()
    config.pop("_provenance", None)
    started = time.monotonic()
    try:
        written = make(
            options.folder, config, PRECISIONS[options.precision], int(options.shard_gigabytes * 1e9)
        )
    except (FileExistsError, KeyError, ValueError) as error:
        print(f"cannot write the checkpoint: {error}", file=sys.stderr)
        return 2
    print(
        f"{written.tensors} tensors, {written.size / 1e9:.1f} GB in {len(written.files)} sparse files, "
        f"{time.monotonic() - started:.1f} s: {options.folder}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
