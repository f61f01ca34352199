"""What every supported stack can be asked; one class a stack carries it out."""

from __future__ import annotations

from typing import Protocol

from draftproof.stacks.backend_facts import BackendFacts
from draftproof.stacks.code_facts import HeadSupport
from draftproof.stacks.command.command import Command
from draftproof.stacks.launch_facts import LaunchJudgement, LaunchPlan, OptionTable
from draftproof.stacks.reading import Reading
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack


class StackRules(Protocol):
    """The questions about one stack. Everything is read from `stack.tree`; nothing is imported from it."""

    def head_support(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
        """Link 3."""

    def options(self, stack: Stack) -> Reading[OptionTable]:
        """The options of the stack's server in this version."""

    def judge(
        self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation, command: Command
    ) -> LaunchJudgement:
        """Link 4: a command, the user's or the proposed one, by the same rules."""

    def plan(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> LaunchPlan:
        """The command that switches the head on."""

    def backends(
        self,
        stack: Stack,
        checkpoint: ServedCheckpoint,
        situation: Situation,
        judgement: LaunchJudgement,
    ) -> BackendFacts:
        """Link 5: the kernels that the command leads to on this GPU."""
