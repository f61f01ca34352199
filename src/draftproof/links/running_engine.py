"""The small protocol through which the chain meets any running engine, ours or another's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Arm(Enum):
    """One side of a comparison."""

    PLAIN = "plain"
    """Speculation off."""
    SPECULATIVE = "speculative"
    """Speculation on."""


@dataclass(frozen=True)
class Prompt:
    """A text to continue.

    Attributes:
        name: short, unique.
        kind: "code", "prose", "chat".
        text: what is given to the engine.
        source: where it is from; empty when the user wrote it.
    """

    name: str
    kind: str
    text: str
    source: str = ""


@dataclass(frozen=True)
class Sampling:
    """How a comparison samples: the same in both arms.

    Attributes:
        temperature: 0 for greedy.
        seed: of the addressed noise.
        max_tokens: output length limit.
    """

    temperature: float
    seed: int
    max_tokens: int


@dataclass(frozen=True)
class DraftCounts:
    """What happened to drafts.

    Attributes:
        passes: verify passes.
        proposed: by position, passes with a draft there.
        accepted: by position, passes whose draft there was accepted.
    """

    passes: int
    proposed: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def accept_length(self) -> float:
        """Tokens per verify pass: 1 + accepted / passes; 0 without a pass."""
        return 1.0 + sum(self.accepted) / self.passes if self.passes else 0.0

    @property
    def rates(self) -> tuple[float, ...]:
        """By position, accepted / proposed."""
        return tuple(
            part / whole if whole else 0.0 for part, whole in zip(self.accepted, self.proposed, strict=True)
        )

    def __add__(self, other: DraftCounts) -> DraftCounts:
        width = max(len(self.proposed), len(other.proposed))

        def added(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
            padded = (values + (0,) * (width - len(values)) for values in (first, second))
            return tuple(left + right for left, right in zip(*padded, strict=True))

        return DraftCounts(
            self.passes + other.passes,
            added(self.proposed, other.proposed),
            added(self.accepted, other.accepted),
        )


@dataclass(frozen=True)
class Generated:
    """One answer of an engine.

    Attributes:
        token_ids: output tokens.
        text: the same as text.
        seconds: time from the first output token to the last.
        drafts: what happened to drafts; no passes in the plain arm of an engine that does not count them.
    """

    token_ids: tuple[int, ...]
    text: str
    seconds: float
    drafts: DraftCounts

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed: the first token belongs to the prompt's time. 0 with fewer than two tokens."""
        return (
            (len(self.token_ids) - 1) / self.seconds if self.seconds > 0 and len(self.token_ids) > 1 else 0.0
        )


@dataclass(frozen=True)
class Difference:
    """Where two answers part, and how close the decision was.

    Attributes:
        index: first output token that differs.
        gap: by how much the plain arm's token beat the other one, in logits after temperature and noise.
        noise: largest difference of the same logits computed in two ways (one row, and within a block of
            rows).
    """

    index: int
    gap: float
    noise: float

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding alone can explain the difference."""
        return self.gap <= 2 * self.noise


class RunningEngine(Protocol):
    """An engine that answers now."""

    name: str
    draft_tokens: int

    def generate(self, prompt: Prompt, sampling: Sampling, arm: Arm) -> Generated:
        """Continue a prompt with speculation on or off."""
        ...

    def explain(
        self, prompt: Prompt, sampling: Sampling, plain: Generated, speculative: Generated
    ) -> Difference:
        """Measure the first difference of two answers that are not equal."""
        ...
