"""How many pages a GPU's memory has room for, beside weights and slots."""

from __future__ import annotations

from dataclasses import replace

from draftproof.architecture.spec import ModelSpec
from draftproof.hardware.memory_plan import KEYS_AND_VALUES, MemoryPlan, SharedState, memory_plan
from draftproof.hardware.weights import WeightTable
from draftproof.runtime.state_store import StateSizes


def plan_of(spec: ModelSpec, weights: WeightTable, sizes: StateSizes) -> MemoryPlan:
    """What an engine of these sizes will take."""
    shared = SharedState(sizes.pages * sizes.page_size, sizes.snapshots)
    return memory_plan(spec, weights, sizes.slots, sizes.max_positions, sizes.window_rows, shared)


def room_on(free: int, total: int, share: float | None) -> int:
    """Bytes that the engine may take.

    Args:
        free: bytes of a GPU's memory that nobody has taken.
        total: all of its bytes.
        share: of them, for this engine alone, whatever others take; None for all that is free.
    """
    return free if share is None else min(free, int(share * total))


def sizes_that_fit(spec: ModelSpec, weights: WeightTable, sizes: StateSizes, free: int) -> StateSizes:
    """The same sizes with as many of their pages as fit, but no fewer than the longest sequence needs.

    Args:
        spec: the model.
        weights: its weights as they are stored.
        sizes: as they are wanted.
        free: bytes of memory.
    """
    plan = plan_of(spec, weights, sizes)
    if plan.total <= free:
        return sizes
    bytes_per_page = plan.of(KEYS_AND_VALUES) / sizes.pages
    if not bytes_per_page:
        return sizes
    too_many = int((plan.total - free) / bytes_per_page) + 1
    fewest = min(-(-sizes.max_positions // sizes.page_size) + 1, sizes.pages)
    return replace(sizes, pages=max(sizes.pages - too_many, fewest))
