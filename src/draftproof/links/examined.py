"""A checkpoint whose architecture is known, compared with what that architecture requires."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from draftproof.architecture.plan_comparison import PlanComparison, compare
from draftproof.architecture.spec import ModelSpec, MoeSpec
from draftproof.architecture.tensor_plan import ModelPart, PlannedTensor, detect_layouts, plan_tensors
from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import ModulePrecision, decide
from draftproof.errors import ConfigError
from draftproof.evidence import Location
from draftproof.links.shell_commands import ShellCommands
from draftproof.links.subject import commands_for
from draftproof.links.value_reading import StoredModules

MOST_EXPERTS = 2_000_000
"""In all layers together; the largest release has 47,104."""


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


def refuse_absurd(spec: ModelSpec) -> None:
    """Refuses a config whose plan would fill the memory before anything is compared with it.

    Raises:
        ConfigError: it asks for more experts than any model has.
    """
    experts = sum(layer.mlp.num_experts for layer in spec.layers if isinstance(layer.mlp, MoeSpec))
    if experts > MOST_EXPERTS:
        raise ConfigError(
            f"config.json: num_experts: {experts:,} experts in {len(spec.layers):,} layers are more than the "
            f"{MOST_EXPERTS:,} that are believed"
        )


def examine(checkpoint: Checkpoint, spec: ModelSpec) -> Examined:
    """Plans every tensor of the model and compares the plan with the headers.

    Raises:
        ConfigError: the plan would be absurdly large.
    """
    refuse_absurd(spec)
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
