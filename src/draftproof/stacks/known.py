"""The stacks whose rules are known."""

from __future__ import annotations

from draftproof.stacks.rules import StackRules
from draftproof.stacks.stack import StackKind


def rules_for(kind: StackKind) -> StackRules:
    """The rules of a stack; imported when they are asked for."""
    if kind is StackKind.SGLANG:
        from draftproof.stacks.sglang.rules import SglangRules

        return SglangRules()
    if kind is StackKind.VLLM:
        from draftproof.stacks.vllm.rules import VllmRules

        return VllmRules()
    from draftproof.stacks.native.rules import NativeRules

    return NativeRules()
