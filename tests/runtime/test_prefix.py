"""The prefix cache: the longest kept beginning, found only with a snapshot behind it and the same token after
it; pages shared, tails copied, the least recently used forgotten first."""

from __future__ import annotations

import pytest

from draftproof.runtime.pages import PageAllocator
from draftproof.runtime.prefix import PrefixCache, PrefixMatch
from draftproof.runtime.slots import SlotAllocator

SIZE = 4
PROMPT = tuple(range(100, 120))
NOTHING = PrefixMatch()


class Kept:
    """A cache with its pools, and beginnings that are published as a sequence would."""

    def __init__(self, pages: int = 20, snapshots: int = 4) -> None:
        self.pages = PageAllocator(pages + 1, SIZE)
        self.cache = PrefixCache(self.pages, SlotAllocator(snapshots))

    def publish(self, tokens: tuple[int, ...], position: int) -> int:
        """Compute and keep the first `position` tokens, then let go of the pages; the snapshot's number."""
        pages = self.pages.allocate(self.pages.pages_for(position))
        snapshot = self.cache.take_snapshot()
        assert snapshot is not None
        self.cache.publish(tokens[: position + 1], pages, snapshot)
        self.pages.release(pages)
        self.cache.check_integrity()
        self.pages.check_integrity()
        return snapshot

    @property
    def used(self) -> int:
        return self.pages.capacity - self.pages.free


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_nothing_is_found_in_an_empty_cache(kept: Kept) -> None:
    assert kept.cache.match(PROMPT, 19) == NOTHING


def test_whole_pages_and_their_snapshot_are_found(kept: Kept) -> None:
    snapshot = kept.publish(PROMPT, 8)
    assert kept.cache.match(PROMPT, 19) == PrefixMatch(8, snapshot, (1, 2), None, 8)


@pytest.mark.parametrize(("limit", "found"), [(7, 0), (8, 8), (9, 8), (11, 8), (12, 12), (19, 12)])
def test_no_more_than_the_limit_is_found(kept: Kept, limit: int, found: int) -> None:
    kept.publish(PROMPT, 8)
    kept.publish(PROMPT, 12)
    assert kept.cache.match(PROMPT, limit).position == found


def test_pages_without_a_snapshot_are_only_a_branch(kept: Kept) -> None:
    """Another prompt begins alike, but the state where they part was never kept."""
    kept.publish(PROMPT, 12)
    other = (*PROMPT[:9], 7, 7, 7, 7)
    assert kept.cache.match(other, 12) == PrefixMatch(branch=8)


def test_the_token_after_a_beginning_must_be_the_same(kept: Kept) -> None:
    """The head's last row was computed with it."""
    kept.publish(PROMPT, 8)
    assert kept.cache.match((*PROMPT[:8], 7, 7, 7), 10) == PrefixMatch(branch=4)
    kept.publish((*PROMPT[:8], 7), 8)
    assert kept.cache.match((*PROMPT[:8], 7, 7, 7), 10).position == 8


def test_beginnings_share_their_pages(kept: Kept) -> None:
    kept.publish(PROMPT, 16)
    assert kept.used == 4
    kept.publish((*PROMPT[:9], *[7] * 9), 16)
    assert kept.used == 6


def test_a_second_snapshot_of_the_same_beginning_is_given_back(kept: Kept) -> None:
    first = kept.publish(PROMPT, 8)
    kept.publish(PROMPT, 8)
    assert kept.cache.snapshots_used == kept.cache.snapshots_kept == 1
    assert kept.cache.match(PROMPT, 19).snapshot == first
    assert kept.used == 2


def test_a_tail_is_found_and_is_not_one_of_the_shared_pages(kept: Kept) -> None:
    snapshot = kept.publish(PROMPT, 10)
    assert kept.cache.match(PROMPT, 19) == PrefixMatch(10, snapshot, (1, 2), 3, 8)
    assert kept.cache.match(PROMPT, 9) == PrefixMatch(branch=8)
    assert kept.cache.match((*PROMPT[:10], 7, 7), 11).position == 0


def test_the_longest_tail_wins_and_a_longer_path_beats_a_tail(kept: Kept) -> None:
    kept.publish(PROMPT, 9)
    kept.publish(PROMPT, 11)
    assert kept.cache.match(PROMPT, 19).position == 11
    kept.publish(PROMPT, 12)
    assert kept.cache.match(PROMPT, 19).position == 12


def test_a_tail_stands_when_the_path_past_it_has_no_snapshot(kept: Kept) -> None:
    kept.publish(PROMPT, 10)
    kept.publish(PROMPT, 16)
    assert kept.cache.match((*PROMPT[:14], 7, 7), 15).position == 10


def test_the_least_recently_used_snapshot_makes_room(kept: Kept) -> None:
    prompts = [(number, *PROMPT) for number in range(5)]
    for prompt in prompts[:4]:
        kept.publish(prompt, 8)
    assert kept.cache.match(prompts[0], 19).position == 8
    kept.publish(prompts[4], 8)
    assert [kept.cache.match(prompt, 19).position for prompt in prompts] == [8, 0, 8, 8, 8]


def test_no_snapshot_when_running_sequences_have_taken_all(kept: Kept) -> None:
    taken = [kept.cache.take_snapshot() for _ in range(4)]
    assert kept.cache.take_snapshot() is None
    kept.cache.give_back(taken[1])  # type: ignore[arg-type]
    assert kept.cache.take_snapshot() == taken[1]


def test_pages_are_freed_from_the_oldest_leaf_up_to_the_next_snapshot(kept: Kept) -> None:
    kept.publish(PROMPT, 4)
    kept.publish(PROMPT, 16)
    kept.publish((7, *PROMPT), 4)
    assert (kept.used, kept.pages.free) == (5, 15)
    assert kept.cache.free_pages(16)
    assert (kept.used, kept.cache.match(PROMPT, 19).position) == (2, 4)


def test_pages_in_use_are_not_freed(kept: Kept) -> None:
    kept.publish(PROMPT, 8)
    match = kept.cache.match(PROMPT, 19)
    kept.pages.share(match.pages)
    kept.publish((7, *PROMPT), 8)
    assert not kept.cache.free_pages(20)
    assert kept.used == 2
    assert kept.cache.match(PROMPT, 19) == match


def test_a_spared_snapshot_stays(kept: Kept) -> None:
    spared = kept.publish(PROMPT, 8)
    kept.publish((7, *PROMPT), 8)
    assert not kept.cache.free_pages(20, spared)
    assert kept.cache.match(PROMPT, 19).snapshot == spared


def test_clearing_forgets_all_but_leaves_pages_to_those_who_use_them(kept: Kept) -> None:
    kept.publish(PROMPT, 10)
    pages = kept.cache.match(PROMPT, 19).pages
    kept.pages.share(pages)
    kept.cache.clear()
    kept.cache.check_integrity()
    assert kept.cache.match(PROMPT, 19) == NOTHING
    assert (kept.used, kept.cache.snapshots_used) == (2, 0)
    kept.pages.release(pages)
    assert kept.used == 0
