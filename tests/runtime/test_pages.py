"""Pages: lowest first, nothing lost, nothing held twice, page 0 never handed out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.errors import UsageError
from draftproof.runtime.pages import SCRAP_PAGE, PageAllocator


def test_pages_come_lowest_first_and_come_back() -> None:
    pages = PageAllocator(8, 16)
    assert pages.capacity == pages.free == 7
    first, second = pages.allocate(3), pages.allocate(2)
    assert (first, second) == ((1, 2, 3), (4, 5))
    assert pages.free == 2
    pages.release(first)
    assert pages.allocate(4) == (1, 2, 3, 6)
    pages.check_integrity()


def test_the_scrap_page_belongs_to_nobody() -> None:
    pages = PageAllocator(4, 16)
    assert SCRAP_PAGE not in pages.allocate(3)
    assert pages.free == 0


@pytest.mark.parametrize(
    ("positions", "expected"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3)]
)
def test_pages_for_positions_rounds_up(positions: int, expected: int) -> None:
    assert PageAllocator(8, 16).pages_for(positions) == expected


@pytest.mark.parametrize("page", [SCRAP_PAGE, 3, 7, 99])
def test_releasing_a_page_that_is_not_in_use_is_a_defect(page: int) -> None:
    pages = PageAllocator(8, 16)
    pages.allocate(2)
    with pytest.raises(ValueError, match=f"page {page} is released"):
        pages.release([page])


def test_releasing_twice_is_a_defect() -> None:
    pages = PageAllocator(8, 16)
    held = pages.allocate(2)
    pages.release(held)
    with pytest.raises(ValueError, match="not in use"):
        pages.release(held)


@pytest.mark.parametrize(("num_pages", "page_size"), [(1, 16), (0, 16), (4, 0)])
def test_too_few_pages_are_refused(num_pages: int, page_size: int) -> None:
    with pytest.raises(UsageError, match="cannot hold a sequence"):
        PageAllocator(num_pages, page_size)


@given(st.lists(st.integers(-6, 4), max_size=40))
def test_any_history_keeps_every_page_once(actions: list[int]) -> None:
    """Positive numbers allocate that many pages, negative ones release one of the holders."""
    pages = PageAllocator(12, 4)
    held: list[tuple[int, ...]] = []
    for action in actions:
        if 0 <= action <= pages.free:
            held.append(pages.allocate(action))
        elif action < 0 and held:
            pages.release(held.pop(action % len(held)))
        pages.check_integrity()
        numbers = [page for one in held for page in one]
        assert len(numbers) == len(set(numbers)) == pages.capacity - pages.free
