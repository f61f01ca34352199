"""SGLang's answers to the questions about a stack, each from a module of its own."""

from __future__ import annotations

from draftproof.stacks.backend_facts import BackendFacts
from draftproof.stacks.code_facts import HeadSupport
from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import LaunchJudgement, LaunchPlan, OptionTable
from draftproof.stacks.reading import Reading
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack

# Each method imports its module when it is called: an audit of one link does not pay for the others.


class SglangRules:
    """`StackRules` for SGLang."""

    def head_support(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
        """Link 3."""
        from draftproof.stacks.sglang.code.head_support import head_support

        return head_support(stack.tree, checkpoint, situation)

    def options(self, stack: Stack) -> Reading[OptionTable]:
        """The options of `sglang.launch_server` in this version."""
        from draftproof.stacks.sglang.launch.options import read_options

        return read_options(stack.tree)

    def judge(
        self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, command: Command
    ) -> LaunchJudgement:
        """Link 4."""
        from draftproof.stacks.sglang.launch.judgement import judge

        return judge(stack.tree, checkpoint, situation, command)

    def plan(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
        """The command that switches the head on."""
        from draftproof.stacks.sglang.launch.plan import plan

        return plan(stack, checkpoint, situation)

    def backends(
        self,
        stack: Stack,
        checkpoint: ServedCheckpoint,
        situation: Situation,
        judgement: LaunchJudgement,
    ) -> BackendFacts:
        """Link 5."""
        from draftproof.stacks.sglang.backend.backends import backends

        return backends(stack, checkpoint, situation, judgement)
