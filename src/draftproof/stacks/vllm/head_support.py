"""Link 3 for vLLM: how this version's source treats the MTP head of one checkpoint."""

from __future__ import annotations

from draftproof.stacks.code_facts import HeadSupport
from draftproof.stacks.reading import not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree


def head_support(tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
    """Everything that link 3 claims about vLLM and this checkpoint."""
    sentence = "not looked for yet"
    return HeadSupport(
        target=not_understood(sentence),
        draft_architecture=not_understood(sentence),
        draft_class=not_understood(sentence),
        registration=not_understood(sentence),
        implementation=not_understood(sentence),
        head_precision=not_understood(sentence),
        landings=not_understood(sentence),
        unwritten=not_understood(sentence),
        noticing=not_understood(sentence),
        defects=(),
    )
