"""A checkpoint's weights as the groups that kernels are chosen for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.architecture.tensor_plan import ModelPart, TensorGroup
from draftproof.checkpoint.precision import Precision
from draftproof.stacks.gathered_tensors import alike_in
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.served_weights import served_weights

_NAMES = {
    (ModelPart.TRUNK, TensorGroup.ATTENTION): "attention projections",
    (ModelPart.TRUNK, TensorGroup.GATED_DELTA_NET): "Gated DeltaNet projections",
    (ModelPart.TRUNK, TensorGroup.ROUTED_EXPERT): "routed experts",
    (ModelPart.TRUNK, TensorGroup.SHARED_EXPERT): "shared experts",
    (ModelPart.TRUNK, TensorGroup.DENSE_MLP): "MLP",
    (ModelPart.TRUNK, TensorGroup.LM_HEAD): "lm_head",
    (ModelPart.MTP, TensorGroup.MTP): "MTP projection",
    (ModelPart.MTP, TensorGroup.ATTENTION): "MTP attention",
    (ModelPart.MTP, TensorGroup.ROUTED_EXPERT): "MTP experts",
    (ModelPart.MTP, TensorGroup.SHARED_EXPERT): "MTP shared expert",
    (ModelPart.MTP, TensorGroup.DENSE_MLP): "MTP MLP",
}
NVFP4 = (Precision.NVFP4_MODELOPT, Precision.NVFP4_COMPRESSED)


@dataclass(frozen=True)
class ModuleGroup:
    """Matrices of one kind in one precision.

    Attributes:
        name: in words.
        precision: as stored.
        is_expert: they are routed experts.
        is_draft: they belong to the head.
        weight_only: the checkpoint has no scales for activations, so that only weights can be 4-bit.
        is_promised: a part of a head that no file shows; its precision is what the config promises.
    """

    name: str
    precision: Precision
    is_expert: bool
    is_draft: bool
    weight_only: bool
    is_promised: bool = False


def module_groups(checkpoint: ServedCheckpoint) -> tuple[ModuleGroup, ...]:
    """The groups, the trunk's first; none when the weights are not known."""
    return tuple(_groups(checkpoint))


def _groups(checkpoint: ServedCheckpoint) -> Iterator[ModuleGroup]:
    weights = served_weights(checkpoint)
    if weights is None:
        return
    weight_only = _has_no_activation_scales(checkpoint)
    for (part, group), name in _NAMES.items():
        precisions = weights.precisions(part, group)
        if part is ModelPart.MTP and not checkpoint.from_files:
            precisions = _stored_in_head(checkpoint, precisions)
        for precision in _matrices(precisions):
            yield ModuleGroup(
                name,
                precision,
                group is TensorGroup.ROUTED_EXPERT,
                part is ModelPart.MTP,
                precision in NVFP4 and weight_only,
                part is ModelPart.MTP and not checkpoint.from_files,
            )


def _matrices(precisions: tuple[Precision, ...]) -> tuple[Precision, ...]:
    """Without the small plain tensors that every group has beside quantised matrices."""
    quantised = tuple(precision for precision in precisions if not precision.is_plain)
    return quantised or precisions[:1]


def _stored_in_head(checkpoint: ServedCheckpoint, declared: tuple[Precision, ...]) -> tuple[Precision, ...]:
    """A head whose tensors are all plain is plain, whatever the config declares."""
    dtypes = {tensor.dtype for tensor in checkpoint.head.values()}
    return (Precision.BF16,) if declared and dtypes and dtypes <= {"BF16", "F32"} else declared


def _has_no_activation_scales(checkpoint: ServedCheckpoint) -> bool:
    """Whether an NVFP4 checkpoint quantises weights alone."""
    if checkpoint.from_files:
        ends = ("input_scale", "input_global_scale")
        return not any(kind.pattern.endswith(ends) for kind in alike_in(checkpoint.trunk))
    section = checkpoint.config.get("quantization_config")
    if not isinstance(section, dict):
        return False
    groups = section.get("config_groups")
    activations = (
        [group.get("input_activations") for group in groups.values() if isinstance(group, dict)]
        if isinstance(groups, dict)
        else []
    )
    if activations:
        return not any(activations)
    return "W4A16" in str(section.get("quant_algo", "")).upper()
