"""What an engine says of itself: counters since its start and levels now. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from draftproof.speculation.acceptance import AcceptanceCounts
from draftproof.speculation.draft_choice import DraftArm as DraftArm  # a part of the status


class AlarmKind(Enum):
    """What an operator should look at."""

    COLLAPSED_ACCEPTANCE = "collapsed_acceptance"
    REPETITION = "repetition"
    FAULTS = "faults"


@dataclass(frozen=True)
class Alarm:
    """Something that is wrong now.

    Attributes:
        kind: what.
        message: one line with the figures and what to do.
        request_ids: where it was seen, the latest first, at most eight.
    """

    kind: AlarmKind
    message: str
    request_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineStatus:
    """Counters since the start and levels now.

    Attributes:
        running: sequences that hold a slot.
        waiting: sequences that wait for one.
        pages_used: attention pages of running sequences.
        pages_cached: pages that only the prefix cache holds.
        pages_total: pages that exist.
        slots_used: state slots of running sequences.
        slots_total: state slots that exist.
        snapshots_used: recurrent states that the prefix cache holds.
        snapshots_total: recurrent states that it can hold.
        prefix_queried_tokens: prompt tokens that were looked up.
        prefix_hit_tokens: prompt tokens whose state was found.
        prompt_tokens: prompt tokens computed.
        generated_tokens: output tokens.
        preemptions: times that a running sequence was put back to be computed again.
        steps: engine steps.
        faults: requests lost to a fault.
        acceptance: of all drafts.
        recent_acceptance: of the latest passes.
        arms: measured choices of K, by batch size.
        alarms: what is wrong now.
    """

    running: int = 0
    waiting: int = 0
    pages_used: int = 0
    pages_cached: int = 0
    pages_total: int = 0
    slots_used: int = 0
    slots_total: int = 0
    snapshots_used: int = 0
    snapshots_total: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    steps: int = 0
    faults: int = 0
    acceptance: AcceptanceCounts = field(default_factory=AcceptanceCounts)
    recent_acceptance: AcceptanceCounts = field(default_factory=AcceptanceCounts)
    arms: tuple[DraftArm, ...] = ()
    alarms: tuple[Alarm, ...] = ()
