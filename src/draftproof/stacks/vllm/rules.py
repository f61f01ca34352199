"""The questions about vLLM, each answered in its own module."""

from __future__ import annotations

from draftproof.stacks.code_facts import HeadSupport
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.stack import Stack
from draftproof.stacks.vllm.head_support import head_support


class VllmRules:
    """`stacks.rules.StackRules` for vLLM."""

    def head_support(self, stack: Stack, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
        """Link 3."""
        return head_support(stack.tree, checkpoint, situation)
