"""The groups of weights that SGLang chooses kernels for."""

from __future__ import annotations

from draftproof.checkpoint.precision import Precision
from draftproof.stacks.module_groups import ModuleGroup, module_groups
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.defect_conditions import method_of, quantisation_of

DENSE_NAMES = ("attention projections", "MLP")
EXPERTS = "routed experts"
DRAFT_EXPERTS = "MTP experts"
DRAFT_DENSE = "MTP projection"


def kernel_groups(checkpoint: ServedCheckpoint) -> tuple[ModuleGroup, ...]:
    """The groups of a checkpoint; of a family whose shapes are not known, what its config declares."""
    return module_groups(checkpoint) or _declared(checkpoint)


def _declared(checkpoint: ServedCheckpoint) -> tuple[ModuleGroup, ...]:
    precision = declared_precision(checkpoint)
    has_experts = any(
        isinstance(section.get(key), int)
        for section in (checkpoint.config, checkpoint.config.get("text_config") or {})
        for key in ("n_routed_experts", "num_experts", "num_local_experts")
    )
    head = _head_precision(checkpoint, precision)
    promised = not checkpoint.from_files
    groups = [ModuleGroup(name, precision, False, False, False) for name in DENSE_NAMES]
    if has_experts:
        groups.append(ModuleGroup(EXPERTS, precision, True, False, False))
        if checkpoint.head:
            groups.append(ModuleGroup(DRAFT_EXPERTS, head, True, True, False, promised))
    if checkpoint.head:
        groups.append(ModuleGroup(DRAFT_DENSE, Precision.BF16, False, True, False, promised))
    return tuple(groups)


def declared_precision(checkpoint: ServedCheckpoint) -> Precision:
    """The precision that the config declares for quantised layers."""
    method = method_of(checkpoint)
    section = quantisation_of(checkpoint)
    algorithm = str(section.get("quant_algo", "")).upper()
    if method == "fp8":
        return Precision.FP8_BLOCK if section.get("weight_block_size") else Precision.FP8_TENSOR
    if method.startswith("modelopt"):
        return Precision.NVFP4_MODELOPT if "FP4" in algorithm else Precision.FP8_TENSOR
    return Precision.UNKNOWN if method else Precision.BF16


def _head_precision(checkpoint: ServedCheckpoint, declared: Precision) -> Precision:
    dtypes = {tensor.dtype for tensor in checkpoint.head.values()}
    return Precision.BF16 if dtypes <= {"BF16", "F32"} else declared
