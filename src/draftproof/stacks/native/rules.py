"""The questions about draftproof's own engine, each answered in its own module."""

from __future__ import annotations

from draftproof.stacks.backend_facts import BackendFacts
from draftproof.stacks.code_facts import HeadSupport
from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import LaunchJudgement, LaunchPlan, OptionTable
from draftproof.stacks.native.backends import backends
from draftproof.stacks.native.head_support import head_support
from draftproof.stacks.native.judgement import judge
from draftproof.stacks.native.options import read_options
from draftproof.stacks.native.plan import plan
from draftproof.stacks.reading import Reading
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.served_weights import served_weights
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack


class NativeRules:
    """`stacks.rules.StackRules` for draftproof's own engine, from its source alone."""

    def head_support(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
        """Link 3."""
        return head_support(stack.tree, checkpoint)

    def options(self, stack: Stack) -> Reading[OptionTable]:
        """The options of `draftproof serve`."""
        return read_options(stack.tree)

    def judge(
        self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, command: Command
    ) -> LaunchJudgement:
        """Link 4."""
        return judge(stack.tree, checkpoint, situation, command)

    def plan(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
        """The command that switches the head on."""
        return plan(stack.tree, checkpoint, situation)

    def backends(
        self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, judgement: LaunchJudgement
    ) -> BackendFacts:
        """Link 5."""
        return backends(stack.tree, served_weights(checkpoint), situation, judgement)
