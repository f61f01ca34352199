"""A thousand random lives in small pools: requests begin alike, grow, give way, are dropped at any stage. No
page, slot, snapshot or holder leaks, and everybody who is not dropped comes to an end."""

from __future__ import annotations

import random

import pytest

from draftproof.runtime.pages import PageAllocator
from draftproof.runtime.prefix import PrefixCache
from draftproof.runtime.scheduler import (
    MOST_PREEMPTIONS,
    DecodeStep,
    Preemption,
    PromptStep,
    Scheduler,
    SchedulerRules,
)
from draftproof.runtime.sequence import Sequence
from draftproof.runtime.slots import SlotAllocator


class Life:
    """An engine without a model: it moves counts as an engine does, and checks all books after every step.

    `state` stands for the recurrent states: the tokens that each slot and snapshot has taken in.
    """

    def __init__(self, chance: random.Random, *, held_back: int, window: int, snapshots: int) -> None:
        self.chance = chance
        self.held_back = held_back
        self.window = window
        pages = PageAllocator(chance.randint(14, 30), chance.choice((2, 4)))
        prefix = PrefixCache(pages, SlotAllocator(snapshots)) if snapshots else None
        rules = SchedulerRules(chance.randint(1, 9), window, 2 * window, snapshot_interval=8)
        self.scheduler = Scheduler(pages, SlotAllocator(chance.randint(1, 4)), rules, prefix)
        self.state: dict[int, tuple[int, ...]] = {}
        self.snapshots: dict[int, tuple[int, ...]] = {}
        self.pages: dict[int, tuple[int, ...]] = {}
        self.alive: dict[str, Sequence] = {}
        self.finished = 0
        self.hits = 0

    def add(self, name: str) -> None:
        """A prompt of a few families that begin alike."""
        size = self.scheduler.pages.page_size
        room = self.scheduler.pages.capacity * size - 2 * self.window
        family = self.chance.randint(0, 2)
        length = self.chance.randint(1, room - 1)
        common = self.chance.randint(0, length)
        own = self.chance.choices(range(9), k=length - common)
        prompt = (*[family * 1000 + place for place in range(common)], *own)
        most = self.chance.randint(1, min(room - length, 25))
        sequence = Sequence(name, prompt, most, held_back=self.held_back)
        self.scheduler.add(sequence)
        self.alive[name] = sequence

    def step(self) -> None:
        while (admission := self.scheduler.admit()) is not None:
            sequence = admission.sequence
            self.state[sequence.slot] = (
                () if admission.snapshot is None else self.snapshots[admission.snapshot]
            )
            if admission.copied_page is not None:
                source, target = admission.copied_page
                self.pages[target] = self.pages[source]
            self.hits += sequence.committed > 0
            self.check_state(sequence)
        while isinstance(step := self.scheduler.next_step(), Preemption):
            self.scheduler.preempt(step.sequence)
        if isinstance(step, PromptStep):
            self.prompt(step)
        elif isinstance(step, DecodeStep):
            for sequence in step.sequences:
                self.decode(sequence)
        self.scheduler.check_integrity()

    def prompt(self, step: PromptStep) -> None:
        sequence, last = step.sequence, step.is_last
        self.commit(sequence, step.count)
        self.keep(sequence, self.scheduler.checkpoint(sequence))
        if last and not self.held_back:
            self.take(sequence, 1)

    def decode(self, sequence: Sequence) -> None:
        count = self.chance.randint(1, self.window)
        self.take(sequence, count, commit=count)

    def commit(self, sequence: Sequence, count: int) -> None:
        begin, end = sequence.committed, sequence.committed + count
        size = self.scheduler.pages.page_size
        assert end <= len(sequence.pages) * size
        for position in range(begin, end):
            page = sequence.pages[position // size]
            assert self.scheduler.pages.holders(page) == 1, "a shared page is written"
            written = self.pages.get(page, ())[: position % size]
            self.pages[page] = (*written, sequence.tokens(position, position + 1)[0])
        self.state[sequence.slot] += sequence.tokens(begin, end)
        sequence.committed = end

    def take(self, sequence: Sequence, count: int, commit: int = 0) -> None:
        before = sequence.committed
        kept = min(count, sequence.remaining)
        sequence.output += self.chance.choices(range(9), k=kept)
        if commit:
            self.commit(sequence, min(commit, sequence.length - 1 - before) or 1)
        self.scheduler.publish(sequence)
        if not sequence.remaining:
            if self.chance.random() < 0.7:
                self.keep(sequence, self.scheduler.take_snapshot(sequence, sequence.committed))
                self.scheduler.publish(sequence)
            self.leave(sequence)
            self.finished += 1

    def keep(self, sequence: Sequence, snapshot: int | None) -> None:
        if snapshot is not None:
            self.snapshots[snapshot] = self.state[sequence.slot]

    def leave(self, sequence: Sequence) -> None:
        self.scheduler.finish(sequence)
        del self.alive[sequence.request_id]

    def check_state(self, sequence: Sequence) -> None:
        """What a sequence begins with is exactly what it would have computed."""
        expected = sequence.tokens(0, sequence.committed)
        assert self.state[sequence.slot] == expected
        size = self.scheduler.pages.page_size
        found = [self.pages[page][:size] for page in sequence.pages[: -(-len(expected) // size)]]
        assert tuple(token for page in found for token in page)[: len(expected)] == expected


@pytest.mark.parametrize("seed", range(20))
def test_fifty_lives(seed: int) -> None:
    chance = random.Random(seed)
    life = Life(
        chance, held_back=seed % 2, window=chance.choice((1, 2, 4)), snapshots=chance.choice((0, 1, 3, 8))
    )
    started = dropped = steps = 0
    longest: dict[str, int] = {}
    while started < 50 or life.alive:
        if started < 50 and chance.random() < 0.3:
            life.add(f"s{started}")
            started += 1
        if life.alive and chance.random() < 0.01:
            life.leave(chance.choice(list(life.alive.values())))
            dropped += 1
        if chance.random() < 0.002:
            life.scheduler.reset_prefix()
        for name, sequence in life.alive.items():
            longest[name] = max(longest.get(name, 0), sequence.preemptions)
        life.step()
        steps += 1
        assert steps < 20_000, "somebody starves"
    assert life.finished + dropped == 50
    assert max(longest.values()) <= MOST_PREEMPTIONS
    life.scheduler.reset_prefix()
    life.scheduler.check_integrity()
    assert life.scheduler.pages.free == life.scheduler.pages.capacity
    assert life.scheduler.slots.free == life.scheduler.slots.num_slots


def test_the_lives_meet_what_they_are_for() -> None:
    """Small pools make sequences give way, and beginnings are found."""
    preemptions = hits = 0
    for seed in range(6):
        life = Life(random.Random(seed), held_back=0, window=2, snapshots=4)
        for number in range(30):
            life.add(f"s{number}")
        while life.alive:
            life.step()
        preemptions += life.scheduler.counts.preemptions
        hits += life.hits
    assert preemptions > 10
    assert hits > 10
