"""An opened checkpoint as a serving stack gets to see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from draftproof.architecture.mtp_layout import survey_head
from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.registry import mtp_declaration
from draftproof.architecture.spec import ExpertLayout, ModelSpec
from draftproof.architecture.stored_plan import Storage, expected_tensors
from draftproof.architecture.tensor_plan import (
    ExpertLayouts,
    ModelPart,
    PlannedTensor,
    TensorPlan,
    plan_tensors,
)
from draftproof.checkpoint.alike import AlikeTensors
from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.config import ConfigFiles
from draftproof.checkpoint.finding import FindingKind
from draftproof.checkpoint.location import HubLocation
from draftproof.checkpoint.precision import Precision
from draftproof.checkpoint.quantization import read_declarations
from draftproof.checkpoint.selection import looks_like_mtp
from draftproof.errors import ConfigError, UnknownArchitecture
from draftproof.links.examined import refuse_absurd
from draftproof.stacks.gathered_tensors import GatheredTensors, LazyTensors, entries_of, stored
from draftproof.stacks.served_checkpoint import ServedCheckpoint, StoredTensor

_UNINDEXED = (FindingKind.UNINDEXED_MTP_FILE, FindingKind.UNINDEXED_FILE, FindingKind.RENAMED_SHARD)
_PLANNED = frozenset(
    (
        Precision.BF16,
        Precision.FP16,
        Precision.FP32,
        Precision.FP8_BLOCK,
        Precision.FP8_TENSOR,
        Precision.FP8_CHANNEL,
        Precision.NVFP4_MODELOPT,
        Precision.NVFP4_COMPRESSED,
    )
)
_ONE_BY_ONE = ExpertLayouts(ExpertLayout.PER_EXPERT, ExpertLayout.PER_EXPERT)

StorageRule = Callable[[PlannedTensor], Storage]
"""How a linear is stored."""


def served_checkpoint(checkpoint: Checkpoint) -> ServedCheckpoint:
    """What a stack's rules are asked about.

    Without weight files the tensors are those that the architecture asks for, experts one by one, in the
    precision that the config declares; nothing for an architecture that is not planned.
    """
    files = checkpoint.config
    location = checkpoint.location
    spec = known_spec(files)
    if checkpoint.inventory.files:
        head, trunk = _split(files, checkpoint.inventory.alike)
    else:
        head, trunk = promised_tensors(spec, declared_storage(files), _ONE_BY_ONE)
    return ServedCheckpoint(
        name=location.argument,
        config=files.config.content or {},
        hf_quant_config=files.hf_quant_config.content,
        spec=spec,
        head=head,
        trunk=trunk,
        from_files=bool(checkpoint.inventory.files),
        unindexed=_unindexed(checkpoint),
        revision=location.revision or "" if isinstance(location, HubLocation) else "",
    )


def head_names(files: ConfigFiles, names: Collection[str]) -> frozenset[str]:
    """The names that belong to the MTP head: by their family's naming rule, and by their own looks."""
    found = {name for name in names if "mtp" in name or "nextn" in name if looks_like_mtp(name)}
    try:
        config = files.config.require()
        found.update(survey_head(mtp_declaration(config), config, names).names)
    except (ConfigError, UnknownArchitecture):
        # A family that nobody knows has no other rule than the looks of its names.
        pass
    return frozenset(found)


def promised_tensors(
    spec: ModelSpec | None, storage_of: StorageRule, layouts: ExpertLayouts
) -> tuple[Mapping[str, StoredTensor], Mapping[str, StoredTensor]]:
    """Head and trunk as an architecture asks for them; the trunk is listed when somebody looks at it.

    Linears in a precision whose tensors are only recognised are left out.

    Args:
        spec: the model; None gives no tensors.
        storage_of: how a linear is stored.
        layouts: how experts lie on disk.
    """
    if spec is None:
        return {}, {}
    plan = plan_tensors(spec, layouts)
    head = TensorPlan(layouts, plan.of(ModelPart.MTP))
    trunk = TensorPlan(layouts, tuple(t for t in plan.tensors if t.part is not ModelPart.MTP))
    return (
        dict(sorted(_promised(head, storage_of))),
        LazyTensors(lambda: dict(_promised(trunk, storage_of))),
    )


def declared_storage(files: ConfigFiles) -> StorageRule:
    """The precision that the config files declare, module by module; BF16 where they say nothing."""
    try:
        declarations = read_declarations(files)
    except ConfigError:
        declarations = ()

    def storage_of(planned: PlannedTensor) -> Storage:
        if not declarations or planned.part is ModelPart.VISION:
            return Storage(Precision.BF16)
        declaration = declarations[-1]
        precision = declaration.declared(planned.module).precision
        static = precision in (Precision.NVFP4_MODELOPT, Precision.FP8_TENSOR, Precision.NVFP4_COMPRESSED)
        return Storage(precision or Precision.BF16, static, declaration.block or (128, 128))

    return storage_of


def known_spec(files: ConfigFiles) -> ModelSpec | None:
    """What the config means; None for a family that is not planned, and for a config without sense."""
    try:
        spec = spec_from_config(files)
        refuse_absurd(spec)
    except (ConfigError, UnknownArchitecture):
        return None
    return spec


def _promised(plan: TensorPlan, storage_of: StorageRule) -> Iterable[tuple[str, StoredTensor]]:
    storages = {tensor.name: storage_of(tensor) for tensor in plan.tensors if tensor.is_linear}
    planned = tuple(
        tensor
        for tensor in plan.tensors
        if not tensor.is_linear or _is_planned(tensor, storages[tensor.name].precision)
    )
    for tensor in expected_tensors(TensorPlan(plan.layouts, planned), lambda linear: storages[linear.name]):
        yield tensor.name, StoredTensor(tensor.name, tensor.shape, tensor.dtypes[0])


def _is_planned(tensor: PlannedTensor, precision: Precision) -> bool:
    return precision in _PLANNED and (precision.is_plain or len(tensor.shape) == 2)


def _split(
    files: ConfigFiles, alike: Sequence[AlikeTensors]
) -> tuple[Mapping[str, StoredTensor], Mapping[str, StoredTensor]]:
    """Head and trunk. No rule of names looks at the number of an expert: one stands for all of a kind."""
    names = head_names(files, [kind.first.name for kind in alike])
    head = entries_of(kind for kind in alike if kind.first.name in names)
    trunk = GatheredTensors(tuple(kind for kind in alike if kind.first.name not in names))
    return {entry.name: stored(entry) for entry in sorted(head)}, trunk


def _unindexed(checkpoint: Checkpoint) -> tuple[str, ...]:
    return tuple(finding.file for finding in checkpoint.inventory.findings if finding.kind in _UNINDEXED)
