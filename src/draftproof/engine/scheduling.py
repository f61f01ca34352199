"""The scheduler over a state store's pages, slots and snapshots."""

from __future__ import annotations

from draftproof.runtime.pages import PageAllocator
from draftproof.runtime.prefix import PrefixCache
from draftproof.runtime.scheduler import Scheduler, SchedulerRules
from draftproof.runtime.slots import SlotAllocator
from draftproof.runtime.state_store import StateSizes


def scheduler_for(
    sizes: StateSizes, prompt_chunk: int, draft_slack: int, snapshot_grain: int = 1
) -> Scheduler:
    """A scheduler for all of a state.

    Args:
        sizes: of the state; without snapshots no prompt is kept.
        prompt_chunk: most prompt rows of one step.
        draft_slack: positions past a sequence's end that drafts may write.
        snapshot_grain: see `SchedulerRules`.
    """
    pages = PageAllocator(sizes.pages, sizes.page_size)
    prefix = PrefixCache(pages, SlotAllocator(sizes.snapshots)) if sizes.snapshots else None
    rules = SchedulerRules(prompt_chunk, sizes.window_rows, draft_slack, snapshot_grain=snapshot_grain)
    return Scheduler(pages, SlotAllocator(sizes.slots), rules, prefix)
