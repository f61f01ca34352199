"""Known defects as data: a rule that looks for the defect in the source at hand, and what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from draftproof.stacks.reading import Reading
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree


class DefectLink(Enum):
    """The link that a defect breaks."""

    CODE = "code"
    LAUNCH = "launch"
    BACKEND = "backend"


class Harm(Enum):
    """What a defect does to a checkpoint that it applies to."""

    BREAKS = "breaks"
    """The link does not hold: the head is lost, or the start fails."""
    WEAKENS = "weakens"
    """The link holds, and something is slower or riskier than it looks: a warning."""


@dataclass(frozen=True)
class Defect:
    """One known defect.

    Attributes:
        identifier: stable, short: "sglang-unwritten-head-unnoticed".
        link: where it counts.
        harm: what it does where it applies.
        title: one sentence that says what is wrong.
        upstream: public reference: "sgl-project/sglang#35797"; "none known" when nobody filed it.
        observed_in: versions whose source was seen to have it.
        looks_for: what the query asks of the source, in words.
        query: True when the source at hand has the defect, False when it was looked for and is not there.
            Reading.understood is False when the source no longer has the form that the query knows.
        applies: whether it matters to this checkpoint in this situation.
        consequence: what the user sees.
        workaround: what the user can do; an option or an environment variable where there is one.
    """

    identifier: str
    link: DefectLink
    harm: Harm
    title: str
    upstream: str
    observed_in: tuple[str, ...]
    looks_for: str
    query: Callable[[SourceTree], Reading[bool]]
    applies: Callable[[ServedCheckpoint, Situation], bool]
    consequence: str
    workaround: str


@dataclass(frozen=True)
class DefectFinding:
    """What a defect's query saw in one source.

    Attributes:
        defect: the rule.
        present: whether the source has it.
        applies: whether it matters here.
    """

    defect: Defect
    present: Reading[bool]
    applies: bool
