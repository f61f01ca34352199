"""Which checkpoints a known defect of SGLang's loading concerns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation

_PACKED = ("U8", "I8", "I32", "F8_E4M3", "F8_E5M2", "F4")
_LISTS = ("ignore", "exclude_modules", "modules_to_not_convert", "exclude", "ignored_layers")
_PARTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_QWEN = ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")
_QWEN_TEXT = ("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM")


def any_head(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Every checkpoint."""
    return True


def quantised(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Its config declares a quantisation."""
    return bool(method_of(checkpoint))


def unindexed_elsewhere(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """A file with a head that the index does not list, and no GLM-4 whose file is rescued."""
    has_file = any("mtp" in name.lower() for name in checkpoint.unindexed)
    return has_file and not checkpoint.architecture.startswith("Glm4Moe")


def parts_listed(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """compressed-tensors of the Qwen3.5 line whose list names single projections of a plain head."""
    listed = any(_names_part(entry) and "mtp" in entry for entry in excluded_of(checkpoint))
    return (
        is_qwen(checkpoint)
        and method_of(checkpoint) == "compressed-tensors"
        and listed
        and is_plain(checkpoint)
    )


def packed_head_in_modelopt(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """ModelOpt NVFP4 of the Qwen3.5 line whose head is packed too."""
    return is_qwen(checkpoint) and _is_modelopt_fp4(checkpoint) and is_packed(checkpoint)


def plain_head_in_quantised_next(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Qwen3-Next, quantised, with a plain head."""
    return is_next(checkpoint) and quantised(checkpoint, situation) and is_plain(checkpoint)


def mtp_listed_in_next(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Qwen3-Next whose list begins entries with mtp, and whose head is plain."""
    listed = any(entry.removeprefix("re:").lstrip("^").startswith("mtp") for entry in excluded_of(checkpoint))
    return is_next(checkpoint) and listed and is_plain(checkpoint)


def quark_at_other_depth(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Quark of the DeepSeek line with another number of layers than 61."""
    is_line = checkpoint.architecture.startswith(("DeepseekV3", "GlmMoeDsa"))
    return is_line and method_of(checkpoint) == "quark" and checkpoint.config.get("num_hidden_layers") != 61


def several_layers(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """DeepSeek's loader, and a head of more than one layer."""
    is_line = checkpoint.architecture.startswith(("DeepseekV3", "GlmMoeDsa"))
    return is_line and _layers(checkpoint) > 1


def several_layers_of_mimo(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """MiMo-V2 with a head of more than one layer."""
    return checkpoint.architecture.startswith("MiMoV2") and _layers(checkpoint) > 1


def is_qwen_head(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """The Qwen3.5 line."""
    return is_qwen(checkpoint)


def plain_head_quark_unlisted(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Quark of the Qwen3.5 line: a plain head whose experts the list does not name."""
    listed = any("mtp" in entry and "mlp.experts" in entry for entry in excluded_of(checkpoint))
    is_quark = is_qwen(checkpoint) and method_of(checkpoint) == "quark"
    return is_quark and is_plain(checkpoint) and not listed


def packed_experts_quark_listed(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Quark of the Qwen3.5 line: packed experts, and a list that names other modules of the head."""
    listed = any(entry.startswith("mtp.") for entry in excluded_of(checkpoint))
    return is_qwen(checkpoint) and method_of(checkpoint) == "quark" and is_packed(checkpoint) and listed


def files_indexed(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """Its weight files are there to be checked."""
    return checkpoint.from_files


def glob_of_parts(checkpoint: ServedCheckpoint, situation: Situation) -> bool:
    """ModelOpt whose list has a pattern with * for single projections, for a head that may follow it."""
    listed = any("*" in entry and _names_part(entry) for entry in excluded_of(checkpoint))
    return method_of(checkpoint).startswith("modelopt") and listed and is_packed(checkpoint)


def is_qwen(checkpoint: ServedCheckpoint) -> bool:
    """The Qwen3.5 line."""
    return checkpoint.architecture in (*_QWEN, *_QWEN_TEXT)


def is_next(checkpoint: ServedCheckpoint) -> bool:
    """Qwen3-Next."""
    return checkpoint.architecture == "Qwen3NextForCausalLM"


def is_packed(checkpoint: ServedCheckpoint) -> bool:
    """A tensor of the head is stored in less than 16 bits; its files say so, a config is not believed."""
    return checkpoint.from_files and _has_packed(checkpoint)


def is_plain(checkpoint: ServedCheckpoint) -> bool:
    """Every tensor of the head is stored in 16 bits or more, by its files."""
    return checkpoint.from_files and bool(checkpoint.head) and not _has_packed(checkpoint)


def method_of(checkpoint: ServedCheckpoint) -> str:
    """`quant_method` of config.json; "modelopt" when only hf_quant_config.json declares one; or empty."""
    section = quantisation_of(checkpoint)
    method = section.get("quant_method")
    if isinstance(method, str):
        return method.lower()
    return "modelopt" if section else ""


def quantisation_of(checkpoint: ServedCheckpoint) -> Mapping[str, Any]:
    """The section that SGLang reads: of config.json, or of hf_quant_config.json when there is none."""
    for key in ("quantization_config", "compression_config"):
        section = checkpoint.config.get(key)
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


def _has_packed(checkpoint: ServedCheckpoint) -> bool:
    return any(tensor.dtype in _PACKED for tensor in checkpoint.head.values())


def _is_modelopt_fp4(checkpoint: ServedCheckpoint) -> bool:
    algorithm = str(quantisation_of(checkpoint).get("quant_algo", "")).upper()
    return method_of(checkpoint).startswith("modelopt") and "FP4" in algorithm


def _names_part(entry: str) -> bool:
    return entry.rstrip("$*").endswith(_PARTS)


def _layers(checkpoint: ServedCheckpoint) -> int:
    count = checkpoint.config.get("num_nextn_predict_layers")
    return count if isinstance(count, int) else 0
