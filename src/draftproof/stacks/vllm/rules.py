"""The questions about vLLM, each answered in its own module."""

from __future__ import annotations

from draftproof.stacks.backend_facts import BackendFacts
from draftproof.stacks.code_facts import HeadSupport
from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import LaunchJudgement, LaunchPlan, OptionTable
from draftproof.stacks.reading import Reading
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.backend.backends import backends
from draftproof.stacks.vllm.code.head_support import head_support
from draftproof.stacks.vllm.launch.launch_judge import judge
from draftproof.stacks.vllm.launch.launch_plan import plan
from draftproof.stacks.vllm.launch.options import option_table


class VllmRules:
    """`stacks.rules.StackRules` for vLLM."""

    def head_support(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
        """Link 3."""
        return head_support(stack.tree, checkpoint, situation)

    def options(self, stack: Stack) -> Reading[OptionTable]:
        """The options of `vllm serve`."""
        return option_table(stack.tree)

    def judge(
        self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, command: Command
    ) -> LaunchJudgement:
        """Link 4."""
        return judge(stack, checkpoint, situation, command)

    def plan(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
        """The command that switches the head on."""
        return plan(stack, checkpoint, situation)

    def backends(
        self,
        stack: Stack,
        checkpoint: ServedCheckpoint,
        situation: Situation,
        judgement: LaunchJudgement,
    ) -> BackendFacts:
        """Link 5."""
        return backends(stack, checkpoint, situation, judgement)
