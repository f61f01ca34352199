"""Every public release of tests/data/configs as a serving stack gets to see it, without its weight files.

Which tensors the heads have, and in which precision, is what the releases have on disk (BF16 heads inside
quantised checkpoints, above all), not what their configs declare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.spec import ExpertLayout
from draftproof.architecture.stored_plan import Storage
from draftproof.architecture.tensor_plan import ExpertLayouts, ModelPart, PlannedTensor
from draftproof.checkpoint.precision import Precision
from draftproof.errors import ConfigError, UnknownArchitecture
from draftproof.links.served import declared_storage, promised_tensors
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from tests.support.other_heads import (
    Config,
    Head,
    deepseek_head,
    glm_air_head,
    glm_sparse_head,
)
from tests.support.public_configs import config_files, public_config, public_config_names
from tests.support.release_completions import completed

PER_EXPERT = ExpertLayouts(ExpertLayout.PER_EXPERT, ExpertLayout.PER_EXPERT)
FUSED = ExpertLayouts(ExpertLayout.FUSED, ExpertLayout.FUSED)
FUSED_TRUNK = ExpertLayouts(ExpertLayout.FUSED, ExpertLayout.PER_EXPERT)

ONLY_QUANT_CONFIG = {
    "nvidia_Qwen3.5-397B-A17B-NVFP4-V2": "Qwen_Qwen3.5-397B-A17B",
    "nvidia_Qwen3.6-27B-NVFP4": "Qwen_Qwen3.6-27B",
    "nvidia_Qwen3.6-35B-A3B-NVFP4": "Qwen_Qwen3.6-35B-A3B",
}
"""Releases of which only hf_quant_config.json is at hand -> the release with the same config.json."""

_LAYOUTS = {
    "Qwen_Qwen3.6-35B-A3B": FUSED,
    "nvidia_Qwen3.6-35B-A3B-NVFP4": ExpertLayouts(ExpertLayout.PER_EXPERT, ExpertLayout.FUSED),
    "Qwen_Qwen3.5-35B-A3B": FUSED_TRUNK,
    "Qwen_Qwen3.5-122B-A10B": FUSED_TRUNK,
    "Qwen_Qwen3.5-397B-A17B": FUSED_TRUNK,
}
_OTHER_HEADS: Mapping[str, Callable[[Config], Head]] = {
    "deepseek-ai_DeepSeek-R1": deepseek_head,
    "zai-org_GLM-4.5-Air": glm_air_head,
    "zai-org_GLM-5.1": glm_sparse_head,
}
"""The other heads (DeepSeek-V4, Flash-Next, MiniMax, MiMo-V2) are not known in full, and left empty."""


@dataclass(frozen=True)
class Release:
    """The config files of one release.

    Attributes:
        name: `owner_name`, as its file in tests/data/configs.
        config: content of config.json.
        hf_quant_config: content of hf_quant_config.json; None when there is none at hand.
    """

    name: str
    config: Mapping[str, Any]
    hf_quant_config: Mapping[str, Any] | None


def release_names() -> list[str]:
    """Every release, those included of which only hf_quant_config.json is at hand."""
    return sorted([*public_config_names(), *ONLY_QUANT_CONFIG])


@cache
def served_release(name: str) -> ServedCheckpoint:
    """One release."""
    release = _release(name)
    files = config_files(release.config, release.hf_quant_config)
    try:
        spec = spec_from_config(files)
    except (ConfigError, UnknownArchitecture):
        spec = None
    declared = declared_storage(files)
    is_fp8 = _method(release.config) == "fp8"

    def storage_of(tensor: PlannedTensor) -> Storage:
        head = tensor.part is ModelPart.MTP
        return declared(tensor) if is_fp8 or not head else Storage(Precision.BF16)

    head, trunk = promised_tensors(spec, storage_of, _LAYOUTS.get(name, PER_EXPERT))
    if name in _OTHER_HEADS:
        head = _OTHER_HEADS[name](release.config)
    return ServedCheckpoint(
        name=name.replace("_", "/", 1),
        config=release.config,
        hf_quant_config=release.hf_quant_config,
        spec=spec,
        head=head,
        trunk=trunk,
        from_files=False,
    )


def with_head(checkpoint: ServedCheckpoint, *changes: Callable[[str], str | None]) -> ServedCheckpoint:
    """The same checkpoint with its head's tensors renamed; None drops one."""
    head = dict(checkpoint.head)
    for change in changes:
        renamed = {change(name): tensor for name, tensor in head.items()}
        head = {name: replace(tensor, name=name) for name, tensor in renamed.items() if name is not None}
    return replace(checkpoint, head=head)


def with_config(checkpoint: ServedCheckpoint, **fields: Any) -> ServedCheckpoint:
    """The same checkpoint with other fields at the top level of config.json."""
    return replace(checkpoint, config={**checkpoint.config, **fields})


def _release(name: str) -> Release:
    base = ONLY_QUANT_CONFIG.get(name)
    config = completed(name, public_config(base or name))
    quant = f"{name}.hf_quant_config"
    own = public_config(quant) if base or name == "nvidia_Qwen3.5-397B-A17B-NVFP4" else None
    return Release(name, config, own)


def _method(config: Mapping[str, Any]) -> str:
    section = config.get("quantization_config") or {}
    return str(section.get("quant_method", ""))
