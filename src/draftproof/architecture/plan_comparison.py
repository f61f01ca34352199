"""A plan against the tensors on disk: what is missing, has another shape, or has no place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from draftproof.architecture.tensor_plan import ModelPart, PlannedTensor, TensorGroup, TensorPlan
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.paused_collection import paused_collection
from draftproof.checkpoint.precision import (
    COMPANION_LEAVES,
    WEIGHT_LEAVES,
    Leaves,
    ModulePrecision,
    Precision,
    decide,
    group_by_module,
)

PLAIN_DTYPES = ("BF16", "F16", "F32")
_CACHE_SCALES = ("k_scale", "v_scale")
_MODULE_LEAVES = frozenset((*WEIGHT_LEAVES, *COMPANION_LEAVES))


@dataclass(frozen=True)
class Misfit:
    """A tensor that is there and is not what the architecture asks for.

    Attributes:
        planned: what is asked for.
        entry: what is there.
        message: one sentence without a full stop.
    """

    planned: PlannedTensor
    entry: TensorEntry
    message: str


@dataclass(frozen=True)
class PlanComparison:
    """What became of every planned tensor and of every tensor on disk.

    Attributes:
        plan: what was compared.
        missing: planned tensors of which nothing is there.
        misfits: tensors of another shape, or no floating point where that is required.
        unexpected: tensors that belong to nothing in the plan.
        modules: how every planned matrix that is there is stored, by module name. Their `problems` name
            missing scales.
        cache_scales: key and value cache scales.
    """

    plan: TensorPlan
    missing: tuple[PlannedTensor, ...]
    misfits: tuple[Misfit, ...]
    unexpected: tuple[TensorEntry, ...]
    modules: Mapping[str, ModulePrecision]
    cache_scales: tuple[TensorEntry, ...]

    def precisions(self, part: ModelPart) -> dict[TensorGroup, dict[Precision, int]]:
        """Number of matrices of each group and precision in one part of the model."""
        table: dict[TensorGroup, dict[Precision, int]] = {}
        for planned in self.plan.of(part):
            stored = self.modules.get(planned.module)
            if stored is not None:
                row = table.setdefault(planned.group, {})
                row[stored.precision] = row.get(stored.precision, 0) + 1
        return table

    def problems(self, part: ModelPart) -> tuple[str, ...]:
        """Sentences about scales that are missing or do not fit, of one part."""
        return tuple(
            problem
            for planned in self.plan.of(part)
            if planned.is_linear and planned.module in self.modules
            for problem in self.modules[planned.module].problems
        )


@paused_collection()
def compare(plan: TensorPlan, tensors: Mapping[str, TensorEntry]) -> PlanComparison:
    """Compares a plan with the tensors that a load reads; a few seconds for 400,000 of them.

    Args:
        plan: the architecture's tensors, for the expert layouts that are on disk.
        tensors: `Inventory.tensors`.
    """
    groups = group_by_module(tensors.values())
    missing: list[PlannedTensor] = []
    misfits: list[Misfit] = []
    modules: dict[str, ModulePrecision] = {}
    used: set[str] = set()
    for planned in plan.tensors:
        if planned.is_linear:
            stored = _stored(planned, groups)
            if stored is None or stored.weight is None:
                missing.append(planned)
            if stored is not None:
                modules[planned.module] = stored
                used.update(entry.name for entry in stored.companions.values())
                if stored.weight is not None:
                    used.add(stored.weight.name)
                    misfits.extend(_matrix_misfit(planned, stored, stored.weight))
        elif (entry := tensors.get(planned.name)) is None:
            missing.append(planned)
        else:
            used.add(entry.name)
            misfits.extend(_plain_misfit(planned, entry))
    rest = [entry for name, entry in tensors.items() if name not in used]
    scales = tuple(entry for name, entry in tensors.items() if name.endswith(_CACHE_SCALES))
    unexpected = tuple(entry for entry in rest if not entry.name.endswith(_CACHE_SCALES))
    return PlanComparison(plan, tuple(missing), tuple(misfits), unexpected, modules, scales)


def _stored(planned: PlannedTensor, groups: Mapping[str, Leaves]) -> ModulePrecision | None:
    """How a matrix is stored; None when neither it nor a companion is there."""
    leaves = groups.get(planned.module)
    if leaves is None or _MODULE_LEAVES.isdisjoint(leaves):
        return None
    return decide(planned.module, leaves)


def _matrix_misfit(planned: PlannedTensor, stored: ModulePrecision, weight: TensorEntry) -> list[Misfit]:
    if stored.logical_shape is None or stored.logical_shape == planned.shape:
        return []
    unpacked = "" if stored.logical_shape == weight.shape else f" (stored as {list(weight.shape)})"
    message = (
        f"{weight.name} has shape {list(stored.logical_shape)}{unpacked}, "
        f"the config asks for {list(planned.shape)}"
    )
    return [Misfit(planned, weight, message)]


def _plain_misfit(planned: PlannedTensor, entry: TensorEntry) -> list[Misfit]:
    if entry.shape != planned.shape:
        message = f"{entry.name} has shape {list(entry.shape)}, the config asks for {list(planned.shape)}"
        return [Misfit(planned, entry, message)]
    if entry.dtype not in PLAIN_DTYPES:
        return [Misfit(planned, entry, f"{entry.name} has dtype {entry.dtype}, which is no floating point")]
    return []
