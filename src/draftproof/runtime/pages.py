"""Pages of attention keys and values: numbers only, the tensors live in the state store."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from draftproof.errors import UsageError

SCRAP_PAGE = 0
"""Belongs to no sequence: padded rows of a window write here."""


class PageAllocator:
    """Hands out page numbers, lowest first, so that a sequence's pages tend to be consecutive.

    A page may have several holders (sequences that begin alike, and the prefix cache); it is free again when
    the last of them releases it.

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
        self._holders: dict[int, int] = {}

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

    def holders(self, page: int) -> int:
        """How many hold a page; 0 when it is free."""
        return self._holders.get(page, 0)

    def allocate(self, count: int) -> tuple[int, ...]:
        """Take `count` pages with one holder each; the caller has checked `free`."""
        pages = tuple(heapq.heappop(self._free) for _ in range(count))
        self._holders.update(dict.fromkeys(pages, 1))
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Add a holder to each page; a page that is not in use is a defect and raises ValueError."""
        for page in pages:
            self._require_held(page, "shared")
            self._holders[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Take a holder away from each page; a page that is not in use is a defect and raises ValueError."""
        for page in pages:
            self._require_held(page, "released")
            self._holders[page] -= 1
            if not self._holders[page]:
                del self._holders[page]
                heapq.heappush(self._free, page)

    def check_integrity(self) -> None:
        """Every page is either free or held, exactly once."""
        if sorted([*self._free, *self._holders]) != list(range(SCRAP_PAGE + 1, self.num_pages)):
            raise ValueError("a page is lost or held twice")

    def _require_held(self, page: int, action: str) -> None:
        if page not in self._holders:
            raise ValueError(f"page {page} is {action} but not in use")
