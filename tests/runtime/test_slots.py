"""Slots: lowest first, nothing lost, nothing held twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.runtime.slots import SlotAllocator


def test_slots_come_lowest_first_and_come_back() -> None:
    slots = SlotAllocator(3)
    assert [slots.allocate() for _ in range(3)] == [0, 1, 2]
    assert slots.free == 0
    slots.release(1)
    assert slots.free == 1
    assert slots.allocate() == 1


@pytest.mark.parametrize("slot", [-1, 1, 3])
def test_releasing_a_slot_that_is_not_in_use_is_a_defect(slot: int) -> None:
    slots = SlotAllocator(3)
    slots.allocate()
    with pytest.raises(ValueError, match=f"slot {slot} is released"):
        slots.release(slot)


@given(st.lists(st.integers(-5, 0), max_size=40))
def test_any_history_keeps_every_slot_once(actions: list[int]) -> None:
    slots = SlotAllocator(4)
    held: list[int] = []
    for action in actions:
        if action == 0 and slots.free:
            held.append(slots.allocate())
        elif held:
            slots.release(held.pop(action % len(held)))
        slots.check_integrity()
        assert len(held) == len(set(held)) == 4 - slots.free
