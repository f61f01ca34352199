"""The precision of parameters as they are built, and of tensors as they are stored, module by module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import (
    COMPANION_LEAVES,
    FUSED_EXPERT_ENDS,
    WEIGHT_LEAVES,
    Precision,
    decide,
    group_by_module,
)
from draftproof.stacks.built_parameter import BuiltParameter
from draftproof.stacks.served_checkpoint import StoredTensor

_PLAIN = {"bfloat16": Precision.BF16, "float16": Precision.FP16, "float32": Precision.FP32}
_WEIGHTS = ("weight", "weight_packed", "qweight", "w13_weight", "w2_weight", "w13_weight_packed")
_GROUPS = (
    ("experts", ".experts."),
    ("shared expert", ".shared_expert"),
    ("router", ".gate."),
    ("attention", "_proj."),
    ("MLP", ".mlp."),
)


def stored_precisions(tensors: Iterable[StoredTensor]) -> Mapping[str, str]:
    """Name of a tensor -> precision of its module on disk, by `Precision.value`."""
    entries = [TensorEntry(tensor.name, tensor.dtype, tensor.shape, "", 0, 0) for tensor in tensors]
    by_module = {
        module: decide(module, leaves).precision.value for module, leaves in group_by_module(entries).items()
    }
    return {
        entry.name: by_module[_module_of(entry.name)] if _is_of_linear(entry.name) else _plain(entry.dtype)
        for entry in entries
    }


def built_precision(parameter: BuiltParameter, names: Mapping[str, BuiltParameter]) -> str:
    """Precision that a parameter's module is built in, by `Precision.value`; empty when it is not known.

    Args:
        parameter: one of the model's.
        names: all of them.
    """
    module, _, leaf = parameter.name.rpartition(".")
    stem = "w13_" if leaf.startswith("w13_") else "w2_" if leaf.startswith("w2_") else ""
    for candidate in (f"{stem}weight", f"{stem}weight_packed", f"{stem}qweight", leaf):
        weight = names.get(f"{module}.{candidate}" if module else candidate)
        if weight is not None:
            return _of_weight(weight, f"{module}.{stem}" if module else stem, names)
    return ""


def _of_weight(weight: BuiltParameter, prefix: str, names: Mapping[str, BuiltParameter]) -> str:
    if weight.dtype in _PLAIN:
        return _PLAIN[weight.dtype].value
    if weight.dtype.startswith("float8"):
        return _of_fp8(prefix, names).value
    if weight.dtype == "uint8":
        if f"{prefix}weight_scale_2" in names:
            return Precision.NVFP4_MODELOPT.value
        if f"{prefix}weight_global_scale" in names:
            return Precision.NVFP4_COMPRESSED.value
        return Precision.MXFP4.value
    if weight.dtype == "int32":
        return _of_int4(weight).value
    return Precision.INT8.value if weight.dtype == "int8" else ""


def _of_int4(weight: BuiltParameter) -> Precision:
    return Precision.INT4_PACKED if weight.name.endswith("weight_packed") else Precision.GPTQ


def _of_fp8(prefix: str, names: Mapping[str, BuiltParameter]) -> Precision:
    if f"{prefix}weight_scale_inv" in names:
        return Precision.FP8_BLOCK
    scale = names.get(f"{prefix}weight_scale")
    if scale is not None and len(scale.shape) > 1 and scale.shape[-1] == 1:
        return Precision.FP8_CHANNEL
    return Precision.FP8_TENSOR


def head_summary(parameters: Sequence[BuiltParameter]) -> str:
    """The precisions of a head in words: "BF16", or "experts FP8 (block scales), attention BF16"."""
    names = {parameter.name: parameter for parameter in parameters}
    by_group: dict[str, set[str]] = {}
    for parameter in parameters:
        if parameter.owner or parameter.name.rpartition(".")[2] not in _WEIGHTS:
            continue
        group = next((title for title, mark in _GROUPS if mark in f".{parameter.name}"), "fc and norms")
        by_group.setdefault(group, set()).add(built_precision(parameter, names))
    every = {precision for found in by_group.values() for precision in found}
    if len(every) == 1:
        return every.pop()
    return ", ".join(f"{group} {' and '.join(sorted(found))}" for group, found in by_group.items())


def _is_of_linear(name: str) -> bool:
    leaf = name.rpartition(".")[2]
    return leaf in (*WEIGHT_LEAVES, *COMPANION_LEAVES) or name.endswith(FUSED_EXPERT_ENDS)


def _module_of(name: str) -> str:
    return name if name.endswith(FUSED_EXPERT_ENDS) else name.rpartition(".")[0]


def _plain(dtype: str) -> str:
    return {"BF16": Precision.BF16, "F16": Precision.FP16, "F32": Precision.FP32}.get(
        dtype, Precision.UNKNOWN
    ).value
