"""Judging launch commands by the rules for vLLM, in a line."""

from __future__ import annotations

from draftproof.hardware.gpu_table import GPUS
from draftproof.stacks.backend_facts import BackendFacts, KernelChoice
from draftproof.stacks.command.parse import parse_command
from draftproof.stacks.command.planned import planned_command
from draftproof.stacks.launch_facts import LaunchFinding, LaunchJudgement, Ruling
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree
from draftproof.stacks.stack import Distribution, Stack, StackKind
from draftproof.stacks.vllm.rules import VllmRules
from tests.support.real_stacks import real_stack
from tests.support.served_checkpoints import served_release

VERSIONS = ("0.19.0", "0.26.0", "0.33.0")
HEADLINE = "nvidia_Qwen3.5-397B-A17B-NVFP4"
RULES = VllmRules()


def situation(gpu: str = "", ranks: int = 1, drafts: int = 3) -> Situation:
    """GPUs by the key of one of them."""
    chosen = next((entry for entry in GPUS if entry.key == gpu), None)
    return Situation(gpu=chosen, tensor_parallel=ranks, draft_tokens=drafts)


def judged(
    version: str,
    text: str,
    release: str | ServedCheckpoint = HEADLINE,
    where: Situation | None = None,
    stack: Stack | None = None,
) -> LaunchJudgement:
    """A command judged by one version's source."""
    checkpoint = served_release(release) if isinstance(release, str) else release
    chosen = stack or real_stack("vllm", version)
    return RULES.judge(chosen, checkpoint, where or situation(), parse_command(text))


def findings(judgement: LaunchJudgement, check: str) -> list[LaunchFinding]:
    """The findings of one check."""
    return [finding for finding in judgement.findings if finding.check == check]


def broken(judgement: LaunchJudgement) -> list[LaunchFinding]:
    """What breaks."""
    return [finding for finding in judgement.findings if finding.ruling is Ruling.BREAKS]


def planned(version: str, release: str, where: Situation) -> LaunchJudgement:
    """The proposed command, judged."""
    stack = real_stack("vllm", version)
    plan = RULES.plan(stack, served_release(release), where)
    command = planned_command(plan, stack.kind)
    return RULES.judge(stack, served_release(release), where, command)


def kernels(
    version: str, release: str, where: Situation, text: str = "", stack: Stack | None = None
) -> BackendFacts:
    """The kernels that a command, or the proposed one, leads to."""
    chosen = stack or real_stack("vllm", version)
    checkpoint = served_release(release)
    command = (
        parse_command(text) if text else planned_command(RULES.plan(chosen, checkpoint, where), chosen.kind)
    )
    judgement = RULES.judge(chosen, checkpoint, where, command)
    return RULES.backends(chosen, checkpoint, where, judgement)


def kernel(facts: BackendFacts, group: str) -> KernelChoice:
    """The choice for one group."""
    return next(choice for choice in facts.choices if choice.group == group)


def with_tree(version: str, tree: SourceTree) -> Stack:
    """A real version with another source."""
    original = real_stack("vllm", version)
    return Stack(StackKind.VLLM, version, tree, "changed by a test", requires=original.requires)


def beside(version: str, *distributions: str) -> Stack:
    """A real version as if installed, with these distributions beside it: "humming-kernels 0.1.19"."""
    original = real_stack("vllm", version)
    found = tuple(Distribution(*entry.split()) for entry in distributions)
    return Stack(
        StackKind.VLLM, version, original.tree, "installed", beside=found, requires=original.requires
    )
