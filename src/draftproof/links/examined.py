"""A checkpoint whose architecture is known, compared with what that architecture requires."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from draftproof.architecture.plan_comparison import PlanComparison, compare
from draftproof.architecture.spec import ModelSpec
from draftproof.architecture.tensor_plan import ModelPart, PlannedTensor, detect_layouts, plan_tensors
from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import ModulePrecision, decide
from draftproof.evidence import Location
from draftproof.links.shell_commands import ShellCommands
from draftproof.links.subject import commands_for
from draftproof.links.value_reading import StoredModules


@dataclass(frozen=True)
class Examined:
    """What the claims of link 2 are about.

    Attributes:
        checkpoint: the files.
        commands: commands that show them.
        spec: what the config asks for.
        found: that, compared with the tensors.
    """

    checkpoint: Checkpoint
    commands: ShellCommands
    spec: ModelSpec
    found: PlanComparison


def examine(checkpoint: Checkpoint, spec: ModelSpec) -> Examined:
    """Plans every tensor of the model and compares the plan with the headers."""
    tensors = checkpoint.inventory.tensors
    plan = plan_tensors(spec, detect_layouts(tensors))
    return Examined(checkpoint, commands_for(checkpoint), spec, compare(plan, tensors))


def stored_modules(examined: Examined) -> StoredModules:
    """Everything planned that is there."""
    plan = examined.found.plan
    rest = (tensor for tensor in plan.tensors if tensor.part is not ModelPart.MTP)
    return StoredModules(_stored(examined, plan.of(ModelPart.MTP)), _stored(examined, rest))


def _stored(examined: Examined, planned: Iterable[PlannedTensor]) -> list[ModulePrecision]:
    modules = []
    for tensor in planned:
        stored = examined.found.modules.get(tensor.module)
        if stored is None and not tensor.is_linear:
            entry = examined.checkpoint.inventory.tensors.get(tensor.name)
            stored = decide(tensor.module, {"weight": entry}) if entry else None
        if stored is not None and stored.weight is not None:
            modules.append(stored)
    return modules


def place_of(entry: TensorEntry) -> Location:
    """Where a tensor lies."""
    return Location(entry.file, tensor=entry.name)
