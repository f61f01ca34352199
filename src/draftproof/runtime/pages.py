"""Pages of attention keys and values: numbers only, the tensors live in the state store."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from draftproof.errors import UsageError

SCRAP_PAGE = 0
"""Belongs to no sequence: padded rows of a window write here."""


class PageAllocator:
    """Hands out page numbers, lowest first, so that a sequence's pages tend to be consecutive.

    Args:
        num_pages: all pages, the scrap page included.
        page_size: positions per page.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        if num_pages < 2 or page_size < 1:
            raise UsageError(f"{num_pages} pages of {page_size} positions cannot hold a sequence")
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = list(range(SCRAP_PAGE + 1, num_pages))
        self._used: set[int] = set()

    @property
    def free(self) -> int:
        """Pages that can be allocated now."""
        return len(self._free)

    @property
    def capacity(self) -> int:
        """Pages that exist for sequences."""
        return self.num_pages - 1

    def pages_for(self, positions: int) -> int:
        """Pages that hold this many positions."""
        return -(-positions // self.page_size)

    def allocate(self, count: int) -> tuple[int, ...]:
        """Take `count` pages; the caller has checked `free`."""
        pages = tuple(heapq.heappop(self._free) for _ in range(count))
        self._used.update(pages)
        return pages

    def release(self, pages: Iterable[int]) -> None:
        """Give pages back; a page that is not in use is a defect and raises ValueError."""
        for page in pages:
            if page not in self._used:
                raise ValueError(f"page {page} is released but not in use")
            self._used.remove(page)
            heapq.heappush(self._free, page)

    def check_integrity(self) -> None:
        """Every page is either free or used, exactly once."""
        if sorted([*self._free, *self._used]) != list(range(SCRAP_PAGE + 1, self.num_pages)):
            raise ValueError("a page is lost or held twice")
