"""Which checkpoints a known defect of vLLM's loading concerns."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation

_PLAIN = ("BF16", "F16", "F32")
_LISTS = ("ignore", "exclude_modules", "modules_to_not_convert", "exclude", "ignored_layers")
_QWEN = ("qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text")
_TELLING_WORDS = ("eagle-", "eagle3", "dflash", "dspark")
_PANGU = "pangu_ultra_moe"
_DEPTH_FIELDS = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_modules")
_EXPERT = re.compile(r"\.experts\.")


def quantised(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Its config declares a quantisation."""
    return bool(method_of(checkpoint))


def not_quantised(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Its config declares none."""
    return not method_of(checkpoint)


def plain_projection_unlisted_in_modelopt_fp4(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """ModelOpt NVFP4 of the Qwen3.5 line: mtp.fc is stored plain, and the list does not cover it."""
    algorithm = str(quantisation_of(checkpoint).get("quant_algo", "")).upper()
    is_fp4 = method_of(checkpoint).startswith("modelopt") and "FP4" in algorithm
    return is_fp4 and _has_plain_projection(checkpoint) and not _lists_projection(checkpoint)


def plain_projection_unlisted_elsewhere(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """compressed-tensors, FP8 or ModelOpt FP8: mtp.fc is stored plain, and the list does not cover it."""
    algorithm = str(quantisation_of(checkpoint).get("quant_algo", "")).upper()
    method = method_of(checkpoint)
    concerned = method in ("compressed-tensors", "fp8") or (
        method.startswith("modelopt") and algorithm.startswith("FP8")
    )
    return concerned and _has_plain_projection(checkpoint) and not _lists_projection(checkpoint)


def head_under_another_prefix(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """The Qwen3.5 line with tensors of the head whose names do not start with "mtp."."""
    return checkpoint.model_type in _QWEN and any(not name.startswith("mtp.") for name in checkpoint.head)


def head_in_unindexed_file(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """A weight file that may hold the head is missing from the index."""
    return bool(checkpoint.unindexed)


def has_experts(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """The head has experts."""
    return any(_EXPERT.search(name) for name in checkpoint.head)


def path_with_a_telling_word(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """A word in the path that belongs to another method."""
    return any(word in checkpoint.name.lower() for word in _TELLING_WORDS)


def model_type_is_part_of_pangu(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """A model type that stands inside the other name, and is not that name."""
    model_type = checkpoint.model_type
    return bool(model_type) and model_type in _PANGU and model_type != _PANGU


def declares_no_layer(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """A field of the config says that the head has zero layers."""
    return any(value == 0 for value in _depths(checkpoint))


def declares_nothing(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """The Qwen3.5 line without any field about a head, and with a head's tensors."""
    is_line = checkpoint.model_type in _QWEN
    return is_line and bool(checkpoint.head) and not list(_depths(checkpoint))


def is_text_only_qwen(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """A flat config of the Qwen3.5 line."""
    return checkpoint.model_type in ("qwen3_5_text", "qwen3_5_moe_text")


def is_glm4(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """GLM-4.5 to 4.7."""
    return checkpoint.architecture == "Glm4MoeForCausalLM"


def method_of(checkpoint: ServedCheckpoint) -> str:
    """`quant_method` of the section that vLLM reads; "modelopt" when hf_quant_config.json is it; or empty."""
    section = quantisation_of(checkpoint)
    method = section.get("quant_method")
    if isinstance(method, str):
        return method.lower()
    return "modelopt" if section else ""


def quantisation_of(checkpoint: ServedCheckpoint) -> Mapping[str, Any]:
    """The quantisation that vLLM reads: of config.json; of hf_quant_config.json when that has none."""
    nested = checkpoint.config.get("text_config")
    holders = [checkpoint.config, nested if isinstance(nested, Mapping) else {}]
    for key in ("quantization_config", "compression_config"):
        for holder in holders:
            section = holder.get(key)
            if isinstance(section, Mapping):
                return section
    own = checkpoint.hf_quant_config or {}
    section = own.get("quantization", own)
    return section if isinstance(section, Mapping) else {}


def excluded_of(checkpoint: ServedCheckpoint) -> Iterator[str]:
    """Entries of the list of modules that are not quantised."""
    section = quantisation_of(checkpoint)
    for key in _LISTS:
        entries = section.get(key)
        if isinstance(entries, list):
            yield from (entry for entry in entries if isinstance(entry, str))


def _has_plain_projection(checkpoint: ServedCheckpoint) -> bool:
    tensor = checkpoint.head.get("mtp.fc.weight")
    return tensor is not None and tensor.dtype in _PLAIN


def _lists_projection(checkpoint: ServedCheckpoint) -> bool:
    return any(_covers(entry, "mtp.fc") for entry in excluded_of(checkpoint))


def _covers(entry: str, module: str) -> bool:
    """Whether an entry of any of the dialects covers a module: name, part of it, glob or expression."""
    if entry.startswith("re:"):
        try:
            return re.match(entry[3:], module) is not None
        except re.error:
            return False
    return entry == module or entry in module or fnmatch.fnmatch(module, entry)


def _depths(checkpoint: ServedCheckpoint) -> Iterator[Any]:
    nested = checkpoint.config.get("text_config")
    for holder in (checkpoint.config, nested if isinstance(nested, Mapping) else {}):
        for field in _DEPTH_FIELDS:
            if field in holder:
                yield holder[field]
