"""What link 5 is about: a checkpoint's weights and shape, the GPUs, and the kernels that a stack chooses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.spec import ModelSpec
from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.config import ConfigFiles
from draftproof.errors import ConfigError, UnknownArchitecture
from draftproof.evidence import Location
from draftproof.hardware.roofline import Model
from draftproof.hardware.shape import Shape, shape_of
from draftproof.hardware.weights import WeightTable, weigh_alike, weigh_config
from draftproof.links.examined import refuse_absurd
from draftproof.links.shell_commands import ShellCommands
from draftproof.links.subject import commands_for
from draftproof.stacks.backend_facts import BackendFacts
from draftproof.stacks.launch_facts import LaunchJudgement, ResolvedLaunch
from draftproof.stacks.rules import StackRules
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.served_weights import served_weights
from draftproof.stacks.situation import CacheType, Situation
from draftproof.stacks.stack import Stack

_FP8_CACHE = ("fp8", "e4m3", "e5m2")
_CACHE_OPTIONS = ("kv-cache-dtype", "kv_cache_dtype")


@dataclass(frozen=True)
class StackKernels:
    """A stack and what its rules found for link 5.

    Attributes:
        stack: where the lines of source are.
        facts: kernels, state layout, requirements, defects.
        resolved: the values in force after the stack's own resolution of the command; None when no command
            was judged.
    """

    stack: Stack
    facts: BackendFacts
    resolved: ResolvedLaunch | None = None

    @property
    def root(self) -> Path:
        """Folder of the stack's source."""
        return self.stack.tree.root


def stack_kernels(
    stack: Stack,
    rules: StackRules,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    judgement: LaunchJudgement,
) -> StackKernels:
    """Asks a stack's rules for link 5, with what link 4 found about the command.

    Raises:
        StackError: the stack's files cannot be read at all.
    """
    facts = rules.backends(stack, checkpoint, situation, judgement)
    return StackKernels(stack, facts, judgement.resolved)


@dataclass(frozen=True)
class BackendSubject:
    """Everything that the claims of link 5 are made from.

    Attributes:
        name: the checkpoint as the user gave it.
        commands: commands that show its files.
        weights: sizes by what the weights do; None when neither files nor config say them.
        shape: the model's numbers; None for a family that is known by its naming rule only.
        shape_problem: why there is no shape; empty when there is one.
        max_position: positions that the model was made for; 0 without a shape.
        text_section: JSON path before the fields of the text model: "text_config." or "".
        situation: GPU, ranks, K, context, concurrency.
        kernels: of the stack; None when no stack was named.
    """

    name: str
    commands: ShellCommands
    weights: WeightTable | None
    shape: Shape | None
    shape_problem: str
    max_position: int
    text_section: str
    situation: Situation
    kernels: StackKernels | None

    @property
    def model(self) -> Model | None:
        """Weights and shape; None when one of them is not known."""
        if self.weights is None or self.shape is None:
            return None
        return Model(self.weights, self.shape)

    @property
    def draft_tokens(self) -> int:
        """K: what the stack makes of the command, else what the situation says."""
        resolved = self.kernels.resolved if self.kernels else None
        value = resolved.draft_tokens.value if resolved else None
        return self.situation.draft_tokens if value is None else value

    @property
    def cache_bytes(self) -> int:
        """Of one element of keys and values: 1 when the command or the situation makes them FP8, else 2."""
        resolved = self.kernels.resolved if self.kernels else None
        for name, value, _ in resolved.options if resolved else ():
            if name.lstrip("-") in _CACHE_OPTIONS and any(mark in value.lower() for mark in _FP8_CACHE):
                return 1
        return 2 if self.situation.cache_type is CacheType.AUTO else 1

    def field(self, name: str) -> Location:
        """A field of the text model in config.json."""
        return Location("config.json", field=f"{self.text_section}{name}")


def subject_for(
    checkpoint: Checkpoint | ServedCheckpoint, situation: Situation, kernels: StackKernels | None
) -> BackendSubject:
    """Weighs a checkpoint; broken files and unknown families leave gaps, and raise nothing."""
    if isinstance(checkpoint, ServedCheckpoint):
        spec, problem = checkpoint.spec, "" if checkpoint.spec else _unknown(checkpoint.architecture)
        weights = served_weights(checkpoint)
        commands = ShellCommands(checkpoint.name, checkpoint.name, remote=False)
        content, name = checkpoint.config, checkpoint.name
    else:
        spec, problem = _spec(checkpoint.config)
        weights = _weights(checkpoint, spec)
        commands = commands_for(checkpoint)
        content, name = checkpoint.config.config.content or {}, checkpoint.location.argument
    return BackendSubject(
        name=name,
        commands=commands,
        weights=weights,
        shape=shape_of(spec) if spec else None,
        shape_problem=problem,
        max_position=spec.max_position if spec else 0,
        text_section="text_config." if isinstance(content.get("text_config"), dict) else "",
        situation=situation,
        kernels=kernels,
    )


def _spec(files: ConfigFiles) -> tuple[ModelSpec | None, str]:
    try:
        spec = spec_from_config(files)
        refuse_absurd(spec)
    except (ConfigError, UnknownArchitecture) as error:
        return None, error.message
    return spec, ""


def _unknown(architecture: str) -> str:
    return f"the shapes of {architecture or 'this architecture'} are not known"


def _weights(checkpoint: Checkpoint, spec: ModelSpec | None) -> WeightTable | None:
    if checkpoint.inventory.tensors:
        return weigh_alike(checkpoint.inventory.alike)
    return weigh_config(spec, checkpoint.config) if spec else None
