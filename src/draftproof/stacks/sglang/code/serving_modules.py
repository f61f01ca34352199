"""The modules of the classes that serve a checkpoint: the registry takes or leaves them as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from draftproof.stacks.evaluation.evaluator import Evaluator
from draftproof.stacks.reading import Reading, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.code.draft_config import draft_architecture
from draftproof.stacks.sglang.code.registry import Registration, registration
from draftproof.stacks.sglang.code.surroundings import SETTINGS, surroundings, with_stand_ins
from draftproof.stacks.source import SourceTree


@dataclass(frozen=True)
class ServingModule:
    """A module that a checkpoint is served with.

    Attributes:
        holds: what its class is: "the checkpoint's own class", "the head's class".
        registered: where that class is registered.
    """

    holds: str
    registered: Reading[Registration]

    @property
    def name(self) -> str:
        """The module without its packages and its ending; empty when it is not known."""
        value = self.registered.value
        return "" if value is None else PurePosixPath(value.place.file).stem


def serving_modules(tree: SourceTree, checkpoint: ServedCheckpoint) -> tuple[ServingModule, ...]:
    """The target's module and the head's, in this order."""
    architecture = checkpoint.architecture
    if not architecture:
        lost: Reading[Registration] = not_understood("looked for architectures in config.json; it names none")
        return (ServingModule("the head's class", lost),)
    evaluator = Evaluator(with_stand_ins(tree), surroundings(), SETTINGS)
    draft = draft_architecture(tree, evaluator, checkpoint.config, architecture)
    head = (
        registration(tree, draft.value)
        if draft.value is not None
        else not_understood(draft.sentence, *draft.places)
    )
    return (
        ServingModule("the checkpoint's own class", registration(tree, architecture)),
        ServingModule("the head's class", head),
    )
