"""`draftproof serve --stack sglang|vllm`: runs the proposed command in place of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from draftproof.cli.console import report_console
from draftproof.cli.planning import MadePlan, make_plan
from draftproof.cli.stack_options import DeploymentRequest
from draftproof.errors import EnvironmentProblem
from draftproof.evidence import Verdict
from draftproof.evidence.plan_terminal import print_plan_verdict, print_shell_command
from draftproof.evidence.terminal_parts import QUIET, heading
from draftproof.hardware.probe import probe_gpus
from draftproof.stacks.request import StackRequest
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack


def serve_on_stack(checkpoint: str, wanted: StackRequest, request: DeploymentRequest, dry_run: bool) -> int:
    """Make the plan, judge it, and become the stack's server.

    Args:
        checkpoint: as the user named it.
        wanted: the stack.
        request: GPUs and load.
        dry_run: show what would be run, and run nothing.

    Raises:
        EnvironmentProblem: something that the command needs is not installed.
    """
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
