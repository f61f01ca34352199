"""The quantization configs that go with a recipe: what each exporter writes, in agreement with the tensors.

Checkpoints whose config disagrees with the disk are made from these by `tests.support.faults`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tests.support.checkpoint_precision import Dialect, Encoding, Precision

_FLOAT8 = {"dynamic": False, "num_bits": 8, "type": "float"}
_FLOAT4 = {"dynamic": False, "group_size": 16, "num_bits": 4, "type": "float"}
_MODELOPT_NAMES = {
    Encoding.NVFP4: "NVFP4",
    Encoding.NVFP4_WEIGHT_ONLY: "W4A16_NVFP4",
    Encoding.FP8_TENSOR: "FP8",
    Encoding.FP8_BLOCK: "FP8_PB_WO",
}
_LINEAR = re.compile(
    r"(_proj|_proj_[a-z]+|in_proj_\w+|mlp\.gate|shared_expert_gate|lm_head|mtp\.fc|attn\.qkv|attn\.proj"
    r"|linear_fc[12]|experts\.gate_up_proj)(\.weight)?$"
)


def quantization_config(precision: Precision, names: Iterable[str]) -> dict[str, Any] | None:
    """config.json's `quantization_config`; None for a plain checkpoint.

    Args:
        precision: the recipe of trunk and head.
        names: the unquantized tensor names.
    """
    names = list(names)
    if precision.dialect is Dialect.FP8:
        return {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "modules_to_not_convert": _plain_modules(precision, names, extra=(".embed_tokens", ".conv1d")),
            "quant_method": "fp8",
            "weight_block_size": list(precision.block),
        }
    if precision.dialect is Dialect.MODELOPT:
        return _modelopt_inline(precision, names)
    if precision.dialect is Dialect.COMPRESSED_TENSORS:
        return _compressed_tensors(precision, names)
    return None


def hf_quant_config(precision: Precision, names: Iterable[str]) -> dict[str, Any] | None:
    """ModelOpt's own hf_quant_config.json; None for the other dialects."""
    if precision.dialect is not Dialect.MODELOPT:
        return None
    names = list(names)
    quantization: dict[str, Any] = {
        "quant_algo": _modelopt_algorithm(precision, names),
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": _modelopt_excludes(precision, names),
    }
    if quantization["quant_algo"] == "MIXED_PRECISION":
        quantization["quantized_layers"] = _quantized_layers(precision, names)
    else:
        quantization["group_size"] = 16
    return {"producer": {"name": "modelopt", "version": "0.42.0"}, "quantization": quantization}


def _modelopt_inline(precision: Precision, names: list[str]) -> dict[str, Any]:
    algorithm = _modelopt_algorithm(precision, names)
    scheme = _FLOAT8 if algorithm == "FP8" else _FLOAT4
    inline: dict[str, Any] = {
        "config_groups": {
            "group_0": {"input_activations": scheme, "targets": ["Linear"], "weights": scheme},
        },
        "ignore": _modelopt_excludes(precision, names),
        "kv_cache_scheme": _FLOAT8,
        "producer": {"name": "modelopt", "version": "0.42.0"},
        "quant_algo": algorithm,
        "quant_method": "modelopt",
    }
    if algorithm == "MIXED_PRECISION":
        del inline["config_groups"]
        inline["quantized_layers"] = _quantized_layers(precision, names)
    return inline


def _modelopt_algorithm(precision: Precision, names: list[str]) -> str:
    """One name, or MIXED_PRECISION when the checkpoint's linears differ."""
    used = {precision.encoding_of(name) for name in names} - {Encoding.BF16, Encoding.FP32}
    return _MODELOPT_NAMES[used.pop()] if len(used) == 1 else "MIXED_PRECISION"


def _quantized_layers(precision: Precision, names: list[str]) -> dict[str, Any]:
    layers: dict[str, Any] = {}
    for name in names:
        encoding = precision.encoding_of(name)
        if encoding.quantized:
            group = {"group_size": precision.block[0] if encoding is Encoding.FP8_BLOCK else 16}
            module = re.sub(r"(\.mlp\.experts)\..*", r"\1", name.removesuffix(".weight"))
            layers[module] = {"quant_algo": _MODELOPT_NAMES[encoding]}
            if encoding is not Encoding.FP8_TENSOR:
                layers[module] |= group
    return layers


def _modelopt_excludes(precision: Precision, names: list[str]) -> list[str]:
    """Unquantized linears, whole subtrees as `prefix*` where the exporter writes them so."""
    quantized = (name for name in names if precision.encoding_of(name).quantized)
    touched = {subtree for name in quantized for subtree in _subtrees(name)}
    patterns: dict[str, None] = {}
    for module in _plain_modules(precision, names):
        whole = [subtree for subtree in _subtrees(f"{module}.weight") if subtree not in touched]
        patterns[f"{whole[0]}*" if whole else module] = None
    return list(patterns)


def _subtrees(name: str) -> tuple[str, ...]:
    """Subtrees that an exporter excludes as a whole and that hold this tensor, largest first."""
    match = re.match(r"(.*\.(linear_attn|self_attn|shared_expert))\.", name)
    roots = tuple(root for root in ("model.visual", "mtp") if name.startswith(f"{root}."))
    return (*roots, match.group(1)) if match else roots


def _compressed_tensors(precision: Precision, names: list[str]) -> dict[str, Any]:
    fp8 = Encoding.FP8_CHANNEL in precision.encodings.values()
    weights = {
        "dynamic": False,
        "group_size": None if fp8 else 16,
        "num_bits": 8 if fp8 else 4,
        "strategy": "channel" if fp8 else "tensor_group",
        "symmetric": True,
        "type": "float",
    }
    activations = weights | (
        {"dynamic": True, "strategy": "token"} if fp8 else {"dynamic": "local", "strategy": "tensor_group"}
    )
    name = "float-quantized" if fp8 else "nvfp4-pack-quantized"
    group = {
        "format": name,
        "input_activations": activations,
        "output_activations": None,
        "targets": ["Linear"],
        "weights": weights,
    }
    return {
        "config_groups": {"group_0": group},
        "format": name,
        "global_compression_ratio": None,
        "ignore": _plain_modules(precision, names),
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }


def _plain_modules(precision: Precision, names: list[str], extra: tuple[str, ...] = ()) -> list[str]:
    """Module names of the linears (and of modules that end in one of `extra`) that are not quantized."""
    modules = []
    for name in names:
        module = name.removesuffix(".weight")
        is_listed = _LINEAR.search(name) is not None or (bool(extra) and module.endswith(extra))
        if is_listed and not precision.encoding_of(name).quantized:
            modules.append(module)
    return modules
