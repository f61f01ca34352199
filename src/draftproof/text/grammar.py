"""Grammars of answers, compiled by llguidance for one tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from draftproof.text.output_rules import OutputRules
from draftproof.text.tokenizer import Tokenizer


class OutputConstraint(Protocol):
    """`runtime.constraint.TokenConstraint`, which stands in a higher layer."""

    @property
    def is_active(self) -> bool: ...

    def allowed(self, drafts: Sequence[int], first_row: int) -> Sequence[NDArray[np.bool_] | None]: ...

    def commit(self, token_ids: Sequence[int]) -> None: ...


class GrammarCompiler:
    """Makes constraints; compiled grammars are kept, so that a schema is compiled once.

    Args:
        tokenizer: of the checkpoint.
        end_token_ids: tokens that end an output; at the end of a grammar nothing else is allowed.
        vocabulary_size: width of the logits.
    """

    def __init__(self, tokenizer: Tokenizer, end_token_ids: Sequence[int], vocabulary_size: int) -> None:
        raise NotImplementedError

    def constraint(self, rules: OutputRules) -> OutputConstraint | None:
        """A constraint for one output; None when the rules leave every token free.

        Raises:
            UsageError: see `check`.
        """
        raise NotImplementedError

    def check(self, rules: OutputRules) -> None:
        """Refuse rules that cannot be followed; takes milliseconds, seconds for very large schemas.

        Raises:
            UsageError: the grammar has a fault (it is named), allows nothing, or the tokenizer has no token
                that ends reasoning.
        """
        raise NotImplementedError
