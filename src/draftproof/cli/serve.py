"""`draftproof serve`: runs the proposed command on an installed stack, in place of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from draftproof.cli.checkpoint_argument import CheckpointArgument
from draftproof.cli.console import report_console
from draftproof.cli.planning import MadePlan, make_plan, one_stack
from draftproof.cli.stack_options import (
    BandwidthOption,
    CacheTypeOption,
    CapabilityOption,
    ConcurrencyOption,
    ContextOption,
    DraftTokensOption,
    GpuOption,
    Load,
    MemoryOption,
    StackOption,
    TensorParallelOption,
    deployment_request,
)
from draftproof.errors import EnvironmentProblem, UsageError
from draftproof.evidence import Verdict
from draftproof.evidence.plan_terminal import print_plan_verdict, print_shell_command
from draftproof.evidence.terminal_parts import QUIET, heading
from draftproof.hardware.gpu_choice import GpuOptions
from draftproof.hardware.probe import probe_gpus
from draftproof.stacks.request import StackRequest
from draftproof.stacks.situation import CacheType, Situation
from draftproof.stacks.stack import Stack, StackKind


def serve(
    checkpoint: CheckpointArgument,
    stack: StackOption = None,
    gpu: GpuOption = None,
    tensor_parallel: TensorParallelOption = None,
    capability: CapabilityOption = None,
    memory: MemoryOption = None,
    bandwidth: BandwidthOption = None,
    draft_tokens: DraftTokensOption = 3,
    context: ContextOption = None,
    concurrency: ConcurrencyOption = 1,
    cache_type: CacheTypeOption = CacheType.AUTO,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be run, and run nothing.")
    ] = False,
) -> int:
    """Serve a checkpoint with its MTP head on SGLang or vLLM: makes the plan, judges it, and runs it.

    The stack must be installed, in this environment or in the one that --stack names by its path. Without
    --gpu, nvidia-smi is asked. A plan with a broken link is not run.

    Exit codes: those of the server once it runs; before that 1 a link is broken, 2 usage, 4 something is
    missing, and with --dry-run those of `draftproof plan`.
    """
    wanted = _request(stack)
    options = GpuOptions(gpu, capability, memory, bandwidth)
    load = Load(draft_tokens, context, concurrency, cache_type)
    request = deployment_request(stack, None, options, tensor_parallel, load)
    made = make_plan(checkpoint, wanted, replace(request, situation=_on_this_machine(request.situation)))
    console = report_console()
    console.print(heading("draftproof serve", made.report.chain.subject))
    console.print()
    print_shell_command(console, made.report)
    print_plan_verdict(console, made.report)
    problems = tuple(_missing(made))
    if dry_run:
        for problem in problems:
            console.print(Text(f"would not start: {problem}"), soft_wrap=True)
        return made.report.exit_code
    if made.report.verdict is Verdict.DISPROVED:
        return made.report.exit_code
    if problems:
        raise EnvironmentProblem("; ".join(problems))
    words = executable_words(made)
    console.print(Text(f"running {words[0]}", style=QUIET), soft_wrap=True)
    environment = {**os.environ, **{entry.name: entry.value for entry in made.report.plan.environment}}
    os.execvpe(words[0], words, environment)


def executable_words(made: MadePlan) -> tuple[str, ...]:
    """The words of the plan, its program taken from the environment that the stack is installed in.

    Raises:
        EnvironmentProblem: that environment does not have the program.
    """
    program, *rest = made.report.words
    folder = made.stack.python.parent if made.stack.python is not None else Path()
    if program in ("python", "python3"):
        return (str(made.stack.python), *rest)
    script = folder / program
    if not script.is_file():
        raise EnvironmentProblem(
            f"{made.stack.label} is installed in {folder.parent}, without its program {program}",
            f"Install it again there: {_pip(made.stack)} install --force-reinstall --no-deps "
            f"'{_named(made.stack)}'",
        )
    return (str(script), *rest)


def _request(stack: str | None) -> StackRequest:
    """The stack to run; our own engine has no server in this version."""
    if stack is None:
        raise UsageError(
            "draftproof has no server of its own yet; it comes with a later release",
            "Serve with --stack sglang or --stack vllm.",
        )
    request = one_stack(stack, "serve")
    if request.kind is StackKind.NATIVE:
        raise UsageError(
            "draftproof has no server of its own yet; it comes with a later release",
            "Serve with --stack sglang or --stack vllm; `draftproof generate` runs our engine.",
        )
    return request


def _on_this_machine(situation: Situation) -> Situation:
    """With the GPU that nvidia-smi names when none was given; without one, link 5 is not run."""
    return situation if situation.gpu is not None else replace(situation, gpu=probe_gpus().gpu)


def _missing(made: MadePlan) -> Iterator[str]:
    """What has to be installed before the command can run, each with how."""
    stack = made.stack
    if stack.python is None:
        yield (
            f"{stack.label} is not installed: it was read as {stack.origin}. "
            f"Run: pip install '{_named(stack)}', and serve with --stack {stack.kind.value}"
        )
        return
    for need in made.report.missing:
        name = f"{need.name} {need.version}".strip()
        yield f"{name} is missing ({need.reason}). Run: {need.command or f'install {need.name}'}"


def _named(stack: Stack) -> str:
    return f"{stack.kind.package}=={stack.version}" if stack.version else stack.kind.package


def _pip(stack: Stack) -> str:
    return f"{stack.python} -m pip"
