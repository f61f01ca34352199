"""Tiny random checkpoints, written as real folders in every layout and precision of the public releases.

    written = write_checkpoint(tmp_path / "moe", CheckpointOptions(moe=True, precision=NVFP4_ROUTED))

Equal seed and sizes give equal logical weights whatever the layout or precision, so a test can load the same
model fused and per expert, or BF16 and FP8, and compare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftproof.architecture.spec import ExpertLayout
from tests.support.checkpoint_config import generation_config, model_config
from tests.support.checkpoint_options import CheckpointOptions, Family, Sizes
from tests.support.checkpoint_precision import (
    ALL_PRECISIONS,
    BF16,
    FP8_BLOCK,
    FP8_BLOCK_EXPERTS,
    FP8_CHANNEL,
    FP8_TENSOR,
    FP32,
    MTP_NVFP4,
    MTP_NVFP4_COMPRESSED,
    NVFP4_COMPRESSED,
    NVFP4_MIXED,
    NVFP4_ROUTED,
    NVFP4_ROUTED_SHARED,
    Dialect,
    EncodedTensor,
    Encoding,
    ModuleGroup,
    Precision,
    encode_tensor,
)
from tests.support.checkpoint_quantization_config import hf_quant_config, quantization_config
from tests.support.tiny_tokenizer import write_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "ALL_PRECISIONS",
    "BF16",
    "FP8_BLOCK",
    "FP8_BLOCK_EXPERTS",
    "FP8_CHANNEL",
    "FP8_TENSOR",
    "FP32",
    "MTP_NVFP4",
    "MTP_NVFP4_COMPRESSED",
    "NVFP4_COMPRESSED",
    "NVFP4_MIXED",
    "NVFP4_ROUTED",
    "NVFP4_ROUTED_SHARED",
    "CheckpointOptions",
    "Dialect",
    "Encoding",
    "ExpertLayout",
    "Family",
    "ModuleGroup",
    "Precision",
    "Sizes",
    "WrittenCheckpoint",
    "write_checkpoint",
]

_FUSED_GROUPS = (
    (re.compile(r"(.*)\.self_attn\.[qkv]_proj\.weight$"), ".self_attn.qkv"),
    (re.compile(r"(.*)\.(?:gate|up)_proj\.weight$"), ".gate_up"),
)


@dataclass(frozen=True)
class WrittenCheckpoint:
    """A checkpoint on disk and the truth about it.

    Attributes:
        folder: where it lies.
        options: what it was made from.
        tensors: float32, what the files stand for after rounding, by the name that an unquantized checkpoint
            of this layout has on disk (`...gate_proj.weight`, never `..._packed` or a scale).
        exact: float32, the same weights before rounding.
        stored: every tensor on disk in its dtype on disk, scales included.
        config: the content of config.json.
    """

    folder: Path
    options: CheckpointOptions
    tensors: Mapping[str, Tensor]
    exact: Mapping[str, Tensor]
    stored: Mapping[str, Tensor]
    config: Mapping[str, Any]

    @property
    def mtp_names(self) -> tuple[str, ...]:
        """Names on disk of the head's tensors, scales included."""
        return tuple(name for name in self.stored if name.startswith("mtp."))


def write_checkpoint(folder: Path, options: CheckpointOptions | None = None) -> WrittenCheckpoint:
    """Writes a checkpoint; `folder` is created and must not hold one already.

    Raises:
        FileExistsError: there is a config.json.
    """
    from tests.support.checkpoint_weights import disk_tensors

    options = options or CheckpointOptions()
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "config.json").exists():
        raise FileExistsError(folder / "config.json")
    exact = disk_tensors(options)
    encoded = _encode(exact, options)
    stored = {name: tensor for item in encoded.values() for name, tensor in item.stored.items()}
    stored |= _kv_scales(exact, options)
    config = _write_configs(folder, options, exact)
    _write_shards(folder, stored, options)
    if options.tokenizer:
        write_tokenizer(folder)
    values = {name: item.value for name, item in encoded.items()}
    return WrittenCheckpoint(folder, options, values, exact, stored, config)


def _encode(exact: Mapping[str, Tensor], options: CheckpointOptions) -> dict[str, EncodedTensor]:
    from tools.quantization import nvfp4_global_scale

    members: dict[str, list[Tensor]] = {}
    for name, tensor in exact.items():
        members.setdefault(_fused_group(name), []).append(tensor)
    encoded = {}
    for name, tensor in exact.items():
        if options.keeps_float32(name):
            encoded[name] = EncodedTensor({name: tensor}, tensor)
            continue
        shared = nvfp4_global_scale(*members[_fused_group(name)]) if options.shared_scales else None
        encoded[name] = encode_tensor(
            name,
            tensor.contiguous(),
            options.recipe,
            scale_inv_dtype=options.scale_inv_dtype,
            shared_scale=shared,
        )
    return encoded


def _fused_group(name: str) -> str:
    """Key of the weights that engines fuse into one matrix, or the name itself."""
    for pattern, suffix in _FUSED_GROUPS:
        match = pattern.match(name)
        if match:
            return match.group(1) + suffix
    return name


def _kv_scales(exact: Mapping[str, Tensor], options: CheckpointOptions) -> dict[str, Tensor]:
    import torch

    if not options.kv_scales:
        return {}
    scales = {}
    for name in exact:
        for projection in ("k", "v"):
            suffix = f".self_attn.{projection}_proj.weight"
            if name.endswith(suffix) and not name.startswith("mtp."):
                scales[f"{name.removesuffix('weight')}{projection}_scale"] = torch.tensor(0.0125)
    return scales


def _write_configs(folder: Path, options: CheckpointOptions, exact: Mapping[str, Tensor]) -> dict[str, Any]:
    config = model_config(options)
    quantization = quantization_config(options.recipe, exact)
    if quantization is not None:
        config["quantization_config"] = quantization
    own = hf_quant_config(options.recipe, exact)
    if own is not None:
        _write_json(folder / "hf_quant_config.json", own)
    if options.generation_config:
        _write_json(folder / "generation_config.json", generation_config())
    _write_json(folder / "config.json", config)
    return config


def _write_shards(folder: Path, stored: Mapping[str, Tensor], options: CheckpointOptions) -> None:
    from safetensors.torch import save_file

    files = _shard_names(options)
    per_shard = -(-len(stored) // len(files))
    names = list(stored)
    weight_map: dict[str, str] = {}
    for number, file in enumerate(files):
        part = {
            name: stored[name].contiguous() for name in names[number * per_shard : (number + 1) * per_shard]
        }
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    if options.shards > 1 or options.index:
        total = sum(tensor.numel() * tensor.element_size() for tensor in stored.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        _write_json(folder / "model.safetensors.index.json", index)


def _shard_names(options: CheckpointOptions) -> list[str]:
    if options.shards == 1:
        return ["model.safetensors"]
    return [
        f"model-{number:05d}-of-{options.shards:05d}.safetensors" for number in range(1, options.shards + 1)
    ]


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
