"""Everything that a finding about a command may look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from draftproof.hardware.gpu import Gpu
from draftproof.hardware.gpu_table import GPUS
from draftproof.stacks.command.command import Command
from draftproof.stacks.evaluation import Unknown
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.launch.given_values import GivenValues, given_values
from draftproof.stacks.sglang.launch.options import ArgumentTable
from draftproof.stacks.sglang.launch.resolution import InForce, Resolution, Resolver
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree

REPRESENTATIVES = (90, 100, 120)
"""Compute capabilities that stand for the rest when no GPU was named."""


@dataclass(frozen=True)
class LaunchContext:
    """A command under judgement.

    Attributes:
        tree: the source.
        arguments: the version's declarations.
        checkpoint: the model.
        situation: the deployment.
        command: as typed.
        values: as the parser reads it.
        resolution: as it is in force.
        resolver: asks the version about the model.
    """

    tree: SourceTree
    arguments: ArgumentTable
    checkpoint: ServedCheckpoint
    situation: Situation
    command: Command
    values: GivenValues
    resolution: Resolution
    resolver: Resolver

    @property
    def environment(self) -> dict[str, str]:
        """Variables that the command sets."""
        return {entry.name: entry.value for entry in self.command.environment}

    @property
    def gpu(self) -> Gpu:
        """The GPU that was named, or one that stands for it in checks that do not depend on it."""
        return self.situation.gpu or _representatives()[0]

    @property
    def ranks(self) -> int:
        """Tensor parallel size in force."""
        size = self.resolution.value("tp_size")
        return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 1


def launch_context(
    tree: SourceTree,
    arguments: ArgumentTable,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    command: Command,
    resolver: Resolver,
) -> LaunchContext:
    """Reads a command and carries out what the version makes of it."""
    values = given_values(command, arguments)
    environment = {entry.name: entry.value for entry in command.environment}
    gpus = (situation.gpu,) if situation.gpu is not None else _representatives()
    resolutions = [(gpu, resolver.resolve(values.values, environment, gpu)) for gpu in gpus]
    return LaunchContext(
        tree, arguments, checkpoint, situation, command, values, _merged(resolutions), resolver
    )


def _representatives() -> tuple[Gpu, ...]:
    return tuple(next(gpu for gpu in GPUS if gpu.capability == capability) for capability in REPRESENTATIVES)


def _merged(resolutions: Sequence[tuple[Gpu, Resolution]]) -> Resolution:
    """What holds on every GPU; the rest depends on the GPU and is not known."""
    first = resolutions[0][1]
    others = [resolution for _, resolution in resolutions[1:]]
    if not others:
        return first
    stopped = [(gpu, resolution) for gpu, resolution in resolutions if resolution.raised is not None]
    lost = first.lost
    if stopped and len(stopped) < len(resolutions):
        gpu, resolution = stopped[0]
        lost = lost or f"it depends on the GPU: on {gpu.architecture} it stops with {resolution.raised}"
    after = {
        name: state if all(_equal(state, other.after.get(name)) for other in others) else _open(name)
        for name, state in first.after.items()
    }
    return replace(first, after=after, lost=lost, raised=None if lost else first.raised)


def _equal(state: InForce, other: InForce | None) -> bool:
    if other is None or isinstance(state.value, Unknown) or isinstance(other.value, Unknown):
        return other is not None and type(state.value) is type(other.value)
    return type(state.value) is type(other.value) and bool(state.value == other.value)


def _open(name: str) -> InForce:
    return InForce(Unknown(f"{name} (depends on the GPU)"))
