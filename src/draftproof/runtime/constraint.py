"""What may come next in one output, asked row by row of a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class TokenConstraint(Protocol):
    """Limits the tokens of one sequence. Its state moves by committed tokens only, never by drafts."""

    @property
    def is_active(self) -> bool:
        """Whether it may limit one of the next `text.output_rules.WATCHED_TOKENS` tokens: steps may be
        launched before the tokens of the last one are known."""
        ...

    def allowed(self, drafts: Sequence[int], first_row: int) -> Sequence[NDArray[np.bool_] | None]:
        """Tokens that may follow each row of a window, where row j also sees the first j drafts.

        Returns:
            For rows `first_row` to len(drafts): a mask [vocabulary], True for allowed tokens, or None when
            all are. Rows after a draft that is not allowed are dead: anything may be said of them. A mask
            allows at least one token.
        """
        ...

    def commit(self, token_ids: Sequence[int]) -> None:
        """Append tokens to the output; they are allowed ones. Never raises."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the output is not what it should be, in one line; None while it is. After a failure only tokens
        that end the output are allowed: to the engine this is an end like any other."""
        ...
