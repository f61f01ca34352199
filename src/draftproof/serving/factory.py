"""How an engine comes to be in its own process: what the worker is given, and what it makes of it.

A factory is pickled by the process that starts the engine, so its module must not need torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from draftproof.serving.messages import EngineReady

if TYPE_CHECKING:
    from draftproof.engine.loop import EngineLoop
    from draftproof.runtime.constraint import TokenConstraint
    from draftproof.text.output_rules import OutputRules
    from draftproof.text.tokenizer import Tokenizer


class ConstraintMaker(Protocol):
    """Turns rules into what limits the tokens of one output."""

    def constraint(self, rules: OutputRules) -> TokenConstraint | None:
        """A fresh constraint; None when the rules allow everything.

        Raises:
            UsageError: the rules cannot be kept.
        """
        ...


@dataclass(frozen=True)
class ServedEngine:
    """Everything that the engine process works with.

    Attributes:
        engine: without requests.
        tokenizer: of its checkpoint.
        constraints: for requests with rules.
        ready: what the other process is told of it.
    """

    engine: EngineLoop
    tokenizer: Tokenizer
    constraints: ConstraintMaker
    ready: EngineReady


class EngineFactory(Protocol):
    """Makes the engine inside its process. Must be picklable."""

    def make(self, report: Callable[[str], None]) -> ServedEngine:
        """Load and wire; `report` takes a line for each part of the work.

        Raises:
            DraftproofError: it cannot be made; the message and the exit code reach the user.
        """
        ...
