"""Options of every command that looks at a serving stack, spelled once, and what they mean together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.errors import EnvironmentProblem, UsageError
from draftproof.hardware.gpu import Gpu
from draftproof.hardware.gpu_choice import GpuOptions, choose_gpu
from draftproof.hardware.probe import probe_gpus
from draftproof.links.served import known_spec
from draftproof.stacks.command.command import Command
from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.request import StackRequest, parse_requests
from draftproof.stacks.situation import CacheType, Situation

_PANEL = "Serving stack"
_DEVICE = "GPUs"
_LOAD = "Load"
_PARALLEL = ("--tp", "--tp-size", "--tensor-parallel-size", "-tp")
"""Names that SGLang and vLLM have for it."""
THIS_MACHINE = "auto"

StackOption = Annotated[
    str | None,
    typer.Option(
        "--stack",
        metavar="STACK",
        rich_help_panel=_PANEL,
        help="sglang, vllm or native as installed; sglang==0.5.12 as released; a path to an environment, a "
        "source tree or a wheel file. Several with commas between them.",
    ),
]
ArgumentsOption = Annotated[
    str | None,
    typer.Option(
        "--args",
        metavar="COMMAND",
        rich_help_panel=_PANEL,
        help="Your own launch command, or only its options; judged instead of the proposed one.",
    ),
]
DraftTokensOption = Annotated[
    int,
    typer.Option(
        "--k",
        "--draft-tokens",
        min=0,
        rich_help_panel=_LOAD,
        help="Most drafts per verify pass (K).",
    ),
]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME",
        rich_help_panel=_DEVICE,
        help="rtx-pro-6000, h200, b200, ... or auto: what nvidia-smi says.",
    ),
]
TensorParallelOption = Annotated[
    int | None,
    typer.Option(
        "--tp",
        "--tensor-parallel-size",
        min=1,
        rich_help_panel=_DEVICE,
        help="GPUs that a layer is split over; 1, or what --args says.",
    ),
]
CapabilityOption = Annotated[
    str | None,
    typer.Option("--sm", metavar="120", rich_help_panel=_DEVICE, help="Compute capability."),
]
MemoryOption = Annotated[
    str | None,
    typer.Option("--memory", metavar="96GB", rich_help_panel=_DEVICE, help="Memory of one GPU."),
]
BandwidthOption = Annotated[
    str | None,
    typer.Option("--bandwidth", metavar="1.8TB/s", rich_help_panel=_DEVICE, help="Of its memory."),
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        "--context",
        "--max-model-len",
        "--context-length",
        min=1,
        rich_help_panel=_LOAD,
        help="Tokens that one sequence should reach; 32,768 or as many as the model was made for.",
    ),
]
ConcurrencyOption = Annotated[
    int,
    typer.Option(
        "--concurrency",
        "--max-num-seqs",
        "--max-running-requests",
        min=1,
        rich_help_panel=_LOAD,
        help="Sequences at once.",
    ),
]
CacheTypeOption = Annotated[
    CacheType,
    typer.Option(
        "--kv-dtype", "--kv-cache-dtype", rich_help_panel=_LOAD, help="What keys and values are kept as."
    ),
]
AcceptLengthOption = Annotated[
    float | None,
    typer.Option(
        "--accept-length",
        min=1.0,
        rich_help_panel=_LOAD,
        help="Tokens per verify pass to predict with; measured, if you can.",
    ),
]
MeasuredOption = Annotated[
    float | None,
    typer.Option(
        "--measured",
        metavar="TOK/S",
        min=0.0,
        rich_help_panel=_LOAD,
        help="Tokens per second that you saw; link 5 says what share of the possible this is.",
    ),
]


@dataclass(frozen=True)
class Load:
    """What the deployment is to carry.

    Attributes:
        draft_tokens: drafts per verify pass (K).
        context: tokens of one sequence; None when the user did not say.
        concurrency: sequences at once.
        cache_type: of keys and values.
        accept_length: tokens per verify pass to predict with; None predicts for a range.
        measured: tokens per second that the user saw; None when not given.
    """

    draft_tokens: int
    context: int | None
    concurrency: int
    cache_type: CacheType
    accept_length: float | None = None
    measured: float | None = None


@dataclass(frozen=True)
class DeploymentRequest:
    """Stacks and situation as the command line asks for them.

    Attributes:
        stacks: in order; none when no stack was named.
        situation: GPUs and load.
        command: the user's launch command; None when the proposed one is to be judged.
        asked_context: tokens of one sequence as the user asked for them; None when nobody did.
    """

    stacks: tuple[StackRequest, ...]
    situation: Situation
    command: Command | None
    asked_context: int | None = None

    def situation_of(self, checkpoint: Checkpoint) -> Situation:
        """The situation for a checkpoint: a context that nobody asked for stays within its positions."""
        spec = known_spec(checkpoint.config)
        if self.asked_context is not None or spec is None or spec.max_position < 1:
            return self.situation
        return replace(self.situation, context=min(self.situation.context, spec.max_position))


def deployment_request(
    stack: str | None, arguments: str | None, gpu: GpuOptions, tensor_parallel: int | None, load: Load
) -> DeploymentRequest:
    """All options together.

    Without `--stack` the stack is the one whose server the command starts.

    Raises:
        UsageError: an option is wrong by itself or beside another.
        EnvironmentProblem: `--gpu auto` on a machine whose GPU is not known.
    """
    command = None if arguments is None else parse_command(arguments)
    requests = parse_requests(stack) if stack is not None else ()
    if command is not None and not requests:
        if command.stack is None:
            raise UsageError("--args needs --stack when it holds options only", "Add --stack sglang or vllm.")
        requests = parse_requests(command.stack.value)
    situation = Situation(
        gpu=chosen_gpu(gpu),
        tensor_parallel=_ranks(tensor_parallel, command),
        draft_tokens=load.draft_tokens,
        context=load.context or Situation.context,
        concurrency=load.concurrency,
        accept_length=load.accept_length,
        measured=load.measured,
        cache_type=load.cache_type,
    )
    if load.measured is not None and situation.gpu is None:
        raise UsageError("--measured is compared with what a GPU can do", "Add --gpu NAME.")
    return DeploymentRequest(requests, situation, command, load.context)


def chosen_gpu(options: GpuOptions) -> Gpu | None:
    """The GPU that the options describe, or that this machine has; None when they say nothing.

    Raises:
        UsageError: an unknown name, or a description with a part missing.
        EnvironmentProblem: `auto`, and this machine's GPU is not known.
    """
    if options.name != THIS_MACHINE:
        return choose_gpu(options)
    probe = probe_gpus()
    if probe.gpu is not None:
        return probe.gpu
    named = ", ".join(dict.fromkeys(gpu.name for gpu in probe.gpus))
    reason = probe.reason or f"the table has no {named}"
    raise EnvironmentProblem(f"--gpu auto: {reason}", "Name it: --gpu NAME, or --sm, --memory, --bandwidth.")


def _ranks(given: int | None, command: Command | None) -> int:
    """From `--tp`, else from the user's command, else 1."""
    flag = command.last(*_PARALLEL) if command is not None else None
    text = flag.value if flag is not None else None
    stated = int(text) if text is not None and text.isdecimal() and int(text) > 0 else None
    if given is not None and stated is not None and given != stated:
        raise UsageError(f"--tp {given} and {flag} of the command disagree", "Leave one of them out.")
    return given or stated or 1
