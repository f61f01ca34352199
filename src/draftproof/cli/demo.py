"""`draftproof demo`: the whole story on the embedded checkpoint, on this machine, in under a minute."""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter
from typing import Annotated

import typer

from draftproof import __version__
from draftproof.checkpoint.checkpoint import Checkpoint, open_checkpoint
from draftproof.cli.comparison_view import ComparisonView
from draftproof.cli.console import report_console, terminal_progress, write_text
from draftproof.cli.engine_options import DeviceOption
from draftproof.cli.function_runner import answer, engine_config, sampling_pair
from draftproof.cli.native_engine import NativeEngine, build_native_engine
from draftproof.engine.config import EngineConfig
from draftproof.errors import EnvironmentProblem
from draftproof.evidence import ChainReport, LinkReport
from draftproof.links.config import check_config
from draftproof.links.function import check_function
from draftproof.links.progress import Progress
from draftproof.links.prompts import shipped_prompts
from draftproof.links.running_engine import Sampling
from draftproof.links.subject import subject_of
from draftproof.links.weights import check_weights

DEMO_COMMAND = "draftproof demo"


def demo(
    draft_tokens: Annotated[
        int, typer.Option("--k", "--draft-tokens", help="Most drafts per verify pass (K).")
    ] = 3,
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-n", help="Tokens of each answer.")] = 96,
    temperature: Annotated[float, typer.Option(help="Of the second round; the first is greedy.")] = 0.8,
    device: DeviceOption = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON instead of the story.")] = False,
) -> int:
    """The whole story on the embedded checkpoint: its head is declared, there, and works, and the text stays
    the same.

    Walks links 1 (config), 2 (weights) and 6 (function): answers prompts that the model never saw, without
    and with NEXTN, greedily and sampled, and compares the texts token for token.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    config = engine_config(draft_tokens, device)
    samplings = sampling_pair(max_tokens, temperature)
    checkpoint = open_checkpoint("tiny")
    view = ComparisonView(report_console(), quiet=as_json)
    view.opening(checkpoint)
    links = [check_config(checkpoint)]
    view.link(links[0])
    with terminal_progress() as progress:
        links.append(check_weights(checkpoint, progress=progress))
        view.link(links[1])
        links.append(_function(checkpoint, config, samplings, view, progress))
    chain = ChainReport(
        subject_of(checkpoint), tuple(links), __version__, started_at, tuple(DEMO_COMMAND.split())
    )
    if as_json:
        from draftproof.evidence.json_report import to_json

        write_text(to_json(chain))
    else:
        view.closing(chain)
    return chain.exit_code


def _function(
    checkpoint: Checkpoint,
    config: EngineConfig,
    samplings: tuple[Sampling, ...],
    view: ComparisonView,
    progress: Progress,
) -> LinkReport:
    prompts = shipped_prompts(checkpoint)
    if not prompts:
        raise EnvironmentProblem("the embedded checkpoint ships no prompts", "Reinstall draftproof.")
    started = perf_counter()
    engine: NativeEngine = build_native_engine(checkpoint, config)
    view.engine_ready(engine, perf_counter() - started)
    comparisons = answer(engine, prompts, samplings, progress, view.answers)
    report = check_function(engine, comparisons, DEMO_COMMAND, started)
    view.table(comparisons)
    view.link(report)
    return report
