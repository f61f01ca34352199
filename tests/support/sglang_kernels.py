"""Asking a real version of SGLang, or a changed copy, which kernels it chooses: no kept answers."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from draftproof.hardware.gpu_table import GPUS
from draftproof.hardware.state_layout import StateLayout
from draftproof.stacks.backend_facts import KernelChoice, Phase
from draftproof.stacks.launch_facts import ResolvedLaunch
from draftproof.stacks.reading import Reading, absent
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.backend.backends import kernels_of, layout_of
from draftproof.stacks.sglang.backend.kernel_groups import kernel_groups
from draftproof.stacks.sglang.backend.kernel_packages import Packages
from draftproof.stacks.sglang.backend.selector import Selectors
from draftproof.stacks.sglang.launch.in_force import ValuesInForce, exported, in_force
from draftproof.stacks.sglang.launch.options import read_arguments
from draftproof.stacks.sglang.launch.resolution import Resolution, Resolver
from draftproof.stacks.source import SourceTree
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release

VERSIONS = ("0.5.9", "0.5.12", "0.5.23")
HEADLINE = "nvidia_Qwen3.5-397B-A17B-NVFP4"
FP8 = "Qwen_Qwen3.5-397B-A17B-FP8"
BF16 = "Qwen_Qwen3.5-397B-A17B"
DENSE_FP8 = "Qwen_Qwen3.5-27B-FP8"
COMPRESSED = "community_Qwen3.5-122B-A10B-NVFP4-ct"
DEEPSEEK = "deepseek-ai_DeepSeek-R1"
TEXT_ONLY = "text-only NVFP4"
GLM = "GLM-4.7-like NVFP4"
SM = {80: "a100-80gb", 89: "l4", 90: "h200", 100: "b200", 103: "b300", 120: "rtx-pro-6000", 121: "dgx-spark"}
"""Compute capability -> one GPU of it."""

NONE: dict[str, Any] = {}
NEXTN: dict[str, Any] = {"speculative_algorithm": "NEXTN"}
EXPLICIT: dict[str, Any] = {
    **NEXTN,
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
BRANCHES: dict[str, Any] = {
    **EXPLICIT,
    "speculative_eagle_topk": 2,
    "speculative_num_draft_tokens": 6,
}
EXTRA_BUFFER: dict[str, Any] = {"mamba_scheduler_strategy": "extra_buffer"}
"""What 0.5.12 wants beside NEXTN for models with recurrent layers."""


@dataclass(frozen=True)
class Asked:
    """What one version makes of a checkpoint, a GPU and a command.

    Attributes:
        resolution: of the command.
        choices: the kernels.
        layout: of the states.
    """

    resolution: Resolution
    choices: tuple[KernelChoice, ...]
    layout: Reading[StateLayout]

    def kernel(self, group: str, phase: Phase = Phase.ANY) -> KernelChoice:
        """The kernel of a group, in a phase."""
        return next(each for each in self.choices if each.group == group and each.phase is phase)


@cache
def checkpoint_named(name: str) -> ServedCheckpoint:
    """A release, or one of the two that are made up from releases."""
    if name == TEXT_ONLY:
        return _text_only()
    if name == GLM:
        original = served_release("zai-org_GLM-4.5-Air")
        section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}
        return replace(original, config={**original.config, "quantization_config": section})
    return served_release(name)


def _text_only() -> ServedCheckpoint:
    original = served_release(HEADLINE)
    config = copy.deepcopy(dict(original.config))
    text = config.pop("text_config")
    config.pop("vision_config", None)
    return replace(
        original, config={**config, **text, "architectures": ["Qwen3_5MoeForCausalLM"]}, hf_quant_config=None
    )


def resolved(version: str, name: str, capability: int, **fields: Any) -> Resolution:
    """A command's values in force."""
    gpu = next(each for each in GPUS if each.key == SM[capability])
    return _resolver(version, name).resolve({"tp_size": 8, **fields}, {}, gpu)


def asked(version: str, name: str, capability: int, **fields: Any) -> Asked:
    """Everything that link 5 learns."""
    resolution = resolved(version, name, capability, **fields)
    return kernels(selectors(version), name, capability, resolution)


def kernels(base: Selectors, name: str, capability: int, resolution: Resolution) -> Asked:
    """The same for selectors that are there."""
    checkpoint = checkpoint_named(name)
    gpu = next(each for each in GPUS if each.key == SM[capability])
    nothing: Reading[Any] = absent("not asked")
    values = in_force(ResolvedLaunch(nothing, nothing, nothing, exported(resolution.after)))
    own = base.elsewhere(gpu, values)
    return Asked(
        resolution, kernels_of(own, checkpoint, kernel_groups(checkpoint)), layout_of(own, checkpoint)
    )


@cache
def selectors(version: str) -> Selectors:
    """A version's selectors; each question sets GPU and values of its own."""
    return selectors_of(version, real_stack("sglang", version).tree)


def selectors_of(version: str, tree: SourceTree) -> Selectors:
    """The selectors of a changed source."""
    stack = replace(real_stack("sglang", version), tree=tree)
    return Selectors(tree, GPUS[0], ValuesInForce({}, {}), Packages(stack))


@cache
def _resolver(version: str, name: str) -> Resolver:
    tree = real_stack("sglang", version).tree
    arguments = read_arguments(tree).value
    assert arguments is not None
    return Resolver(tree, arguments, checkpoint_named(name))
