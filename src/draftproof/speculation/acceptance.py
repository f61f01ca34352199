"""What became of drafts, and when an output ends: counts and integers only. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class FinishReason(Enum):
    """Why an output ended."""

    STOP = "stop"
    """A stop token, an end-of-sequence token or a stop string."""
    LENGTH = "length"
    """The token limit."""


@dataclass(frozen=True)
class OutputEnd:
    """When one sequence's output ends.

    Attributes:
        stop_token_ids: tokens that end it, end-of-sequence tokens included unless the request ignores them.
        max_tokens: its length limit in tokens; None for no limit.
        min_tokens: stop tokens count only when at least this many output tokens precede them.
    """

    stop_token_ids: frozenset[int]
    max_tokens: int | None = None
    min_tokens: int = 0


@dataclass(frozen=True)
class TruncatedRun:
    """What counts of an emitted run.

    Attributes:
        kept: leading tokens that belong to the output; a stop token is the last of them.
        finish_reason: None while the output goes on.
    """

    kept: int
    finish_reason: FinishReason | None


def truncate_emitted(emitted: Sequence[int], output_count: int, end: OutputEnd) -> TruncatedRun:
    """Find where an emitted run ends the output.

    A stop token at the length limit is a stop: it is looked for before the limit at every token.

    Args:
        emitted: token ids that one window emitted, in order.
        output_count: output tokens before them.
        end: what ends the output.
    """
    if end.max_tokens is not None and output_count >= end.max_tokens:
        return TruncatedRun(0, FinishReason.LENGTH)
    for index, token_id in enumerate(emitted):
        preceding = output_count + index
        if token_id in end.stop_token_ids and preceding >= end.min_tokens:
            return TruncatedRun(index + 1, FinishReason.STOP)
        if preceding + 1 == end.max_tokens:
            return TruncatedRun(index + 1, FinishReason.LENGTH)
    return TruncatedRun(len(emitted), None)


@dataclass(frozen=True)
class AcceptanceCounts:
    """What happened to drafts over any number of passes; sums of two are counts of both.

    Position 0 is a window's first draft. Where the output ended inside a pass, the drafts after its last kept
    token were never the output's business: they are counted as neither proposed nor accepted.

    Attributes:
        passes: verify passes.
        emitted: tokens that the passes added to the output.
        proposed: by position, passes that had a draft there.
        reached: by position, those of them whose drafts before it were all accepted.
        accepted: by position, those of them whose draft there was accepted too.
    """

    passes: int = 0
    emitted: int = 0
    proposed: tuple[int, ...] = ()
    reached: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()

    @classmethod
    def of_pass(cls, draft_count: int, accepted: int, kept: int) -> AcceptanceCounts:
        """Counts of one pass.

        Args:
            draft_count: drafts in the window.
            accepted: how many were accepted, at most `draft_count`.
            kept: tokens that the pass added to the output, at most `accepted` + 1.
        """
        if not 0 <= accepted <= draft_count or not 0 <= kept <= accepted + 1:
            raise ValueError(f"{accepted} of {draft_count} drafts accepted and {kept} tokens kept cannot be")
        if kept <= accepted:
            draft_count = accepted = kept
        return cls(
            passes=1,
            emitted=kept,
            proposed=(1,) * draft_count,
            reached=tuple(int(position <= accepted) for position in range(draft_count)),
            accepted=tuple(int(position < accepted) for position in range(draft_count)),
        )

    def __add__(self, other: AcceptanceCounts) -> AcceptanceCounts:
        return AcceptanceCounts(
            self.passes + other.passes,
            self.emitted + other.emitted,
            _add_by_position(self.proposed, other.proposed),
            _add_by_position(self.reached, other.reached),
            _add_by_position(self.accepted, other.accepted),
        )

    @property
    def accept_length(self) -> float:
        """Tokens per verify pass: 1 + accepted / passes; 0 before the first pass.

        A pass in which the output ended on a draft added no further token, so this exceeds emitted / passes
        by the share of such passes.
        """
        return 1.0 + sum(self.accepted) / self.passes if self.passes else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted drafts / proposed drafts; 0 when there were none."""
        proposed = sum(self.proposed)
        return sum(self.accepted) / proposed if proposed else 0.0

    @property
    def unconditional_rates(self) -> tuple[float, ...]:
        """By position, accepted / proposed: how often a draft there and all before it are accepted."""
        return tuple(part / whole for part, whole in zip(self.accepted, self.proposed, strict=True))

    @property
    def conditional_rates(self) -> tuple[float, ...]:
        """By position, accepted / reached: how often a draft there is accepted once all before it are."""
        return tuple(
            part / whole if whole else 0.0 for part, whole in zip(self.accepted, self.reached, strict=True)
        )


def _add_by_position(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """Element-wise sum; the shorter one counts as zeros where it ends."""
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    if not shorter:
        return longer
    return tuple(value + added for value, added in zip(longer, shorter + (0,) * len(longer), strict=False))
