"""Slots of recurrent state: numbers only."""

from __future__ import annotations

import heapq


class SlotAllocator:
    """Hands out numbers of places for recurrent state, lowest first, so that a batch's slots tend to be
    consecutive."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = list(range(num_slots))
        self._used: set[int] = set()

    @property
    def free(self) -> int:
        """Slots that can be allocated now."""
        return len(self._free)

    def allocate(self) -> int:
        """Take one slot; the caller has checked `free`."""
        slot = heapq.heappop(self._free)
        self._used.add(slot)
        return slot

    def release(self, slot: int) -> None:
        """Give a slot back; a slot that is not in use is a defect and raises ValueError."""
        if slot not in self._used:
            raise ValueError(f"slot {slot} is released but not in use")
        self._used.remove(slot)
        heapq.heappush(self._free, slot)

    def check_integrity(self) -> None:
        """Every slot is either free or used, exactly once."""
        if sorted([*self._free, *self._used]) != list(range(self.num_slots)):
            raise ValueError("a slot is lost or held twice")
