"""Judging commands against real versions of SGLang, for the tests of its launch part."""

from __future__ import annotations

from draftproof.hardware.gpu import Gpu
from draftproof.hardware.gpu_table import GPUS
from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.command.planned import planned_command
from draftproof.stacks.launch_facts import LaunchFinding, LaunchJudgement, LaunchPlan, Ruling
from draftproof.stacks.overlay import OverlaidTree
from draftproof.stacks.sglang.launch.judgement import judge_afresh
from draftproof.stacks.sglang.launch.plan import plan_afresh
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import StackKind
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release

VERSIONS = ("0.5.9", "0.5.12", "0.5.23")
HEADLINE = "nvidia_Qwen3.5-397B-A17B-NVFP4"
MODEL = "nvidia/Qwen3.5-397B-A17B-NVFP4"
START = f"python -m sglang.launch_server --model-path {MODEL}"
TRIPLE = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"


def gpu(key: str) -> Gpu:
    """A GPU of the table."""
    return next(entry for entry in GPUS if entry.key == key)


def situation(key: str = "b200", ranks: int = 8) -> Situation:
    """So many of one GPU."""
    return Situation(gpu(key), ranks)


def tree_of(version: str) -> SourceTree:
    """A real version's source."""
    return real_stack("sglang", version).tree


def judged(
    source: str | SourceTree, text: str, where: Situation | None = None, release: str = HEADLINE
) -> LaunchJudgement:
    """A typed command, judged without kept answers."""
    tree = tree_of(source) if isinstance(source, str) else source
    return judge_afresh(tree, served_release(release), where or situation(), parse_command(text))


def planned(version: str, where: Situation, release: str = HEADLINE) -> tuple[LaunchPlan, LaunchJudgement]:
    """The proposed command and what is found about it, both without kept answers."""
    stack, checkpoint = real_stack("sglang", version), served_release(release)
    plan = plan_afresh(stack, checkpoint, where)
    command = planned_command(plan, StackKind.SGLANG)
    return plan, judge_afresh(stack.tree, checkpoint, where, command)


def findings(judgement: LaunchJudgement, check: str) -> list[LaunchFinding]:
    """The findings of one check."""
    return [finding for finding in judgement.findings if finding.check == check]


def ruled(judgement: LaunchJudgement, *rulings: Ruling) -> list[LaunchFinding]:
    """The findings with one of these rulings."""
    return [finding for finding in judgement.findings if finding.ruling in rulings]


def strategy_option(version: str) -> str:
    """How a version calls the option for the cache of recurrent states."""
    return "--mamba-radix-cache-strategy" if version == "0.5.23" else "--mamba-scheduler-strategy"


def changed(version: str, *edits: tuple[str, str, str]) -> SourceTree:
    """A real version's source with edits: file, text, what takes its place. An empty text is all of it."""
    tree = tree_of(version)
    files: dict[str, str | None] = {}
    for file, old, new in edits:
        content = files.get(file) or tree.text(file)
        if old and old not in content:
            raise ValueError(f"{file} of {version} does not hold {old!r}")
        files[file] = content.replace(old, new) if old else new
    return OverlaidTree(tree, files)
