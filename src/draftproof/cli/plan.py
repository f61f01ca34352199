"""`draftproof plan`: the launch command that switches a checkpoint's head on, each word with its reason."""

from __future__ import annotations

from typing import Annotated

import typer

from draftproof.cli.checkpoint_argument import CheckpointArgument
from draftproof.cli.console import report_console, write_text
from draftproof.cli.planning import make_plan, one_stack
from draftproof.cli.stack_options import (
    AcceptLengthOption,
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
from draftproof.evidence.plan_terminal import print_plan
from draftproof.hardware.gpu_choice import GpuOptions
from draftproof.stacks.situation import CacheType


def plan(
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
    accept_length: AcceptLengthOption = None,
    one_line: Annotated[
        bool, typer.Option("--one-line", help="Only the command, on one line, for scripts.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The plan as JSON on stdout.")] = False,
) -> int:
    """Propose the launch command that switches a checkpoint's MTP head on, with a reason for every word.

    The command is judged before it is shown, by the rules that judge a command of your own: links 1 to 4,
    and with --gpu link 5, which also says what fits and how fast it can be.

    Exit codes: 0 the command holds, 1 it does not, 3 not enough evidence.
    """
    request = deployment_request(
        stack,
        None,
        GpuOptions(gpu, capability, memory, bandwidth),
        tensor_parallel,
        Load(draft_tokens, context, concurrency, cache_type, accept_length),
    )
    report = make_plan(checkpoint, one_stack(stack, "plan"), request).report
    if as_json:
        from draftproof.evidence.plan_json import plan_to_json

        write_text(plan_to_json(report))
    elif one_line:
        write_text(f"{report.one_line}\n")
    else:
        print_plan(report_console(), report)
    return report.exit_code
