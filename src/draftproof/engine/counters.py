"""What an engine counts, and the status that it makes of it. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.engine.status import EngineStatus
from draftproof.runtime.scheduler import Scheduler
from draftproof.speculation.acceptance import AcceptanceCounts


@dataclass
class EngineCounters:
    """Counts since the start.

    Attributes:
        steps: engine steps that did something.
        prompt_tokens: prompt rows computed.
        generated_tokens: output tokens.
        faults: requests lost to a fault.
    """

    steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    faults: int = 0


def status_of(scheduler: Scheduler, counters: EngineCounters, acceptance: AcceptanceCounts) -> EngineStatus:
    """Counts, and levels now; what watches the engine adds its own."""
    pages, slots, prefix = scheduler.pages, scheduler.slots, scheduler.prefix
    used = len({page for sequence in scheduler.running for page in sequence.pages})
    return EngineStatus(
        running=len(scheduler.running),
        waiting=scheduler.waiting,
        pages_used=used,
        pages_cached=pages.capacity - pages.free - used,
        pages_total=pages.capacity,
        slots_used=slots.num_slots - slots.free,
        slots_total=slots.num_slots,
        snapshots_used=prefix.snapshots_used if prefix else 0,
        snapshots_total=prefix.snapshots_total if prefix else 0,
        prefix_queried_tokens=scheduler.counts.queried_tokens,
        prefix_hit_tokens=scheduler.counts.hit_tokens,
        prompt_tokens=counters.prompt_tokens,
        generated_tokens=counters.generated_tokens,
        preemptions=scheduler.counts.preemptions,
        steps=counters.steps,
        faults=counters.faults,
        acceptance=acceptance,
    )
