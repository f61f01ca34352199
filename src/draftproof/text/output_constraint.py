"""Output rules carried out token by token: reasoning, its budget, and the grammar of what follows.

Where an output stands is a small value; a window's rows are looked at by walking on from the committed place
along the drafts and back, so that drafts never move anything that a commit does not move too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from draftproof.errors import UsageError
from draftproof.text.output_rules import WATCHED_TOKENS, Thinking
from draftproof.text.reasoning import END_BYTES, REASONING_BEGIN, REASONING_END
from draftproof.text.tokenizer import Tokenizer

GAP_NEWLINES = 2
"""Newlines that chat templates put between the end of reasoning and the answer; models write them too."""

Mask = NDArray[np.bool_]


class Taken(Enum):
    """What a grammar makes of a token."""

    YES = "moved over it"
    NO = "it may not come next"
    GAVE_UP = "it may come next, but the parser has hit a limit"


class GrammarMatcher(Protocol):
    """One output's place in a grammar."""

    @property
    def may_end(self) -> bool:
        """Whether the tokens so far are a whole answer."""
        ...

    def mask(self) -> Mask:
        """Tokens that may come next, [vocabulary], of this call alone; those that end the output where
        `may_end`, and none at all when the parser hits a limit."""
        ...

    def take(self, token_id: int) -> Taken:
        """Move over a token, or stay."""
        ...

    def back(self, count: int) -> None:
        """Undo the last `count` tokens taken."""
        ...


class OutputVocabulary:
    """What tokens mean to output rules; one for all outputs of a tokenizer.

    Args:
        tokenizer: of the checkpoint.
        end_token_ids: tokens that end an output.
        size: width of the logits.
    """

    def __init__(self, tokenizer: Tokenizer, end_token_ids: Sequence[int], size: int) -> None:
        self._tokenizer = tokenizer
        self.size = size
        self.end_token_ids = frozenset(token_id for token_id in end_token_ids if token_id < size)
        self.reasoning_begin = tokenizer.token_id(REASONING_BEGIN)
        self._reasoning_end = tokenizer.token_id(REASONING_END)

    @property
    def has_reasoning(self) -> bool:
        """Whether there are tokens that begin and end reasoning; without them outputs have none."""
        return self.reasoning_begin is not None and self._reasoning_end is not None

    @property
    def reasoning_end(self) -> int:
        """The token that ends reasoning.

        Raises:
            UsageError: there is none, so that it cannot be forced.
        """
        if self._reasoning_end is None or self._reasoning_end >= self.size:
            raise UsageError(
                f"the tokenizer has no token {REASONING_END}, so reasoning cannot be limited or followed "
                "by a grammar",
                "Switch thinking off for this request.",
            )
        return self._reasoning_end

    def piece(self, token_id: int) -> bytes:
        """The bytes of a token."""
        return self._tokenizer.piece(token_id)

    @cached_property
    def pieces(self) -> tuple[bytes, ...]:
        """The bytes of every token."""
        return tuple(self._tokenizer.piece(token_id) for token_id in range(self.size))

    @cached_property
    def only_ends(self) -> Mask:
        """Tokens that end the output, and no others."""
        return self.only(self.end_token_ids)

    @cached_property
    def not_ends(self) -> Mask:
        """All tokens but those that end the output."""
        return ~self.only_ends

    def only(self, token_ids: Sequence[int] | frozenset[int]) -> Mask:
        """Some tokens and no others."""
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[list(token_ids)] = True
        return mask

    @cached_property
    def newlines(self) -> tuple[tuple[int, int], ...]:
        """Tokens that are nothing but newlines, few enough for the gap: (token id, newlines)."""
        return tuple(
            (token_id, len(piece))
            for token_id, piece in enumerate(self.pieces)
            if piece and len(piece) <= GAP_NEWLINES and not piece.strip(b"\n")
        )

    def reasoning_mask(self, tail: bytes) -> Mask:
        """Tokens that neither end the output nor spell the end of reasoning in other tokens than its own: a
        grammar could not begin in the middle of a token.

        Args:
            tail: the last bytes before.
        """
        lengths = [length for length in range(1, len(END_BYTES)) if tail.endswith(END_BYTES[:length])]
        if not lengths:
            return self._not_ends_of_reasoning
        mask = self._not_ends_of_reasoning.copy()
        for token_id, piece in enumerate(self.pieces):
            if any(piece.startswith(END_BYTES[length:]) for length in lengths):
                mask[token_id] = False
        return mask

    @cached_property
    def _not_ends_of_reasoning(self) -> Mask:
        mask = self.not_ends.copy()
        for token_id, piece in enumerate(self.pieces):
            if END_BYTES in piece and token_id != self._reasoning_end:
                mask[token_id] = False
        return mask


class _Phase(Enum):
    BEGIN = "before the first token, which may begin reasoning"
    REASONING = "in the reasoning"
    GAP = "between reasoning and answer"
    ANSWER = "in the grammar"
    ENDED = "after a token that ended the output"
    FREE = "nothing is limited any more"
    GAVE_UP = (
        "the grammar's parser has hit a limit: no token is allowed, which ends this request with a fault"
    )


@dataclass(frozen=True)
class _Place:
    """Where an output stands after some token.

    Attributes:
        phase: which rules apply to the next token.
        count: reasoning tokens, or newlines in the gap.
        tail: last bytes of the reasoning.
        is_matched: the token was the grammar's.
    """

    phase: _Phase
    count: int = 0
    tail: bytes = b""
    is_matched: bool = False


class OutputConstraint:
    """A `runtime.constraint.TokenConstraint` for one output.

    Args:
        vocabulary: what tokens mean.
        thinking: None when nothing is reasoning.
        matcher: fresh, of this output; None when the answer is free.

    Raises:
        UsageError: the output begins inside reasoning, and no token ends it.
    """

    def __init__(
        self, vocabulary: OutputVocabulary, thinking: Thinking | None, matcher: GrammarMatcher | None
    ) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._budget = None if thinking is None else thinking.budget
        phase = _Phase.FREE if matcher is None else _Phase.ANSWER
        if thinking is not None and (thinking.begins_open or vocabulary.has_reasoning):
            self._reasoning_end = vocabulary.reasoning_end
            phase = _Phase.REASONING if thinking.begins_open else _Phase.BEGIN
        self._committed = _Place(phase)
        self._walked: list[tuple[int, _Place]] = []
        self._masks: dict[tuple[int, ...], Mask | None] = {}

    @property
    def is_active(self) -> bool:
        """Whether one of the next `WATCHED_TOKENS` tokens may be limited."""
        place = self._committed
        if self._matcher is not None:
            return True
        if place.phase is _Phase.FREE or self._budget is None:
            return False
        return self._budget - place.count <= WATCHED_TOKENS

    def allowed(self, drafts: Sequence[int], first_row: int) -> Sequence[Mask | None]:
        """Tokens that may follow each row of a window, see `runtime.constraint.TokenConstraint`."""
        return [self._mask_after(tuple(drafts[:row])) for row in range(first_row, len(drafts) + 1)]

    def commit(self, token_ids: Sequence[int]) -> None:
        """Append tokens to the output; after one that was not allowed it can only end, see `failure`."""
        is_allowed = self._walk_to(token_ids)
        self._committed = self._place if is_allowed else _Place(_Phase.GAVE_UP)
        self._walked.clear()
        self._masks.clear()

    @property
    def failure(self) -> str | None:
        """Why the output is not what the rules say; None while it is, or may still become so."""
        if self._committed.phase is not _Phase.GAVE_UP:
            return None
        return "the grammar could not be followed to the end of the answer: its parser hit a limit"

    @property
    def _place(self) -> _Place:
        return self._walked[-1][1] if self._walked else self._committed

    def _mask_after(self, drafts: tuple[int, ...]) -> Mask | None:
        """Tokens that may follow the drafts; None for all, or when the drafts themselves may not be."""
        # A drafter asks for the same rows one by one that the target then asks for at once.
        if drafts not in self._masks:
            self._masks[drafts] = self._mask() if self._walk_to(drafts) else None
        return self._masks[drafts]

    def _walk_to(self, token_ids: Sequence[int]) -> bool:
        """Stand where these tokens lead from the committed place, or as far towards it as they are
        allowed."""
        common = 0
        for (walked, _), token_id in zip(self._walked, token_ids, strict=False):
            if walked != token_id:
                break
            common += 1
        matched = sum(place.is_matched for _, place in self._walked[common:])
        if self._matcher is not None:
            self._matcher.back(matched)
        del self._walked[common:]
        for token_id in token_ids[common:]:
            place = self._after(token_id)
            if place is None:
                return False
            self._walked.append((token_id, place))
        return True

    def _after(self, token_id: int) -> _Place | None:
        """Where a token leads, the grammar moved; None, and nothing is moved, when it is not allowed."""
        place = replace(self._place, is_matched=False)
        if place.phase is _Phase.REASONING:
            return self._after_reasoning(place, token_id)
        if place.phase is _Phase.BEGIN:
            if token_id == self._vocabulary.reasoning_begin:
                return _Place(_Phase.REASONING)
            if self._matcher is None:
                is_blank = not self._vocabulary.piece(token_id).strip()
                return place if is_blank else _Place(_Phase.FREE)
        if place.phase in (_Phase.FREE, _Phase.GAVE_UP):
            return place
        is_end = token_id in self._vocabulary.end_token_ids
        if place.phase is _Phase.ENDED:
            return place if is_end else None
        assert self._matcher is not None
        if is_end:
            return _Place(_Phase.ENDED) if self._matcher.may_end else None
        taken = self._matcher.take(token_id)
        if taken is Taken.YES:
            return _Place(_Phase.ANSWER, is_matched=True)
        if taken is Taken.GAVE_UP:
            return _Place(_Phase.GAVE_UP)
        if place.phase is _Phase.GAP and token_id in self._gap_tokens(place):
            return replace(place, count=place.count + len(self._vocabulary.piece(token_id)))
        return None

    def _after_reasoning(self, place: _Place, token_id: int) -> _Place | None:
        if token_id == self._reasoning_end:
            return _Place(_Phase.FREE if self._matcher is None else _Phase.GAP)
        if self._must_end_reasoning(place):
            return None
        text = place.tail + self._vocabulary.piece(token_id)
        if self._matcher is None and END_BYTES in text:
            return _Place(_Phase.FREE)
        if self._matcher is not None and (END_BYTES in text or token_id in self._vocabulary.end_token_ids):
            return None
        return replace(place, count=place.count + 1, tail=text[-len(END_BYTES) + 1 :])

    def _must_end_reasoning(self, place: _Place) -> bool:
        return self._budget is not None and place.count >= self._budget

    def _gap_tokens(self, place: _Place) -> frozenset[int]:
        left = GAP_NEWLINES - place.count
        return frozenset(token_id for token_id, newlines in self._vocabulary.newlines if newlines <= left)

    def _mask(self) -> Mask | None:
        """Tokens that may come next where the walk stands; None for all."""
        place, vocabulary = self._place, self._vocabulary
        if place.phase in (_Phase.ENDED, _Phase.GAVE_UP):
            return vocabulary.only_ends
        if place.phase is _Phase.REASONING and self._must_end_reasoning(place):
            return vocabulary.only((self._reasoning_end,))
        if self._matcher is None:
            return None
        if place.phase is _Phase.REASONING:
            return vocabulary.reasoning_mask(place.tail)
        mask = self._matcher.mask()
        if not self._matcher.may_end:
            # Llguidance lets an answer end where no token goes on, even in the middle.
            mask[list(vocabulary.end_token_ids)] = False
        if place.phase is _Phase.GAP:
            mask[list(self._gap_tokens(place))] = True
        if place.phase is _Phase.BEGIN and vocabulary.reasoning_begin is not None:
            mask[vocabulary.reasoning_begin] = True
        # Where nothing is allowed the end is chosen, and its commit finds that it was none of the grammar's.
        return mask if mask.any() else vocabulary.only_ends
