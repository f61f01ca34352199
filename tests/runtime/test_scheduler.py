"""The scheduler: first come first served, pages as sequences grow, prompts in turns between decode steps, the
youngest gives way, kept beginnings are found again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from draftproof.errors import UsageError
from draftproof.runtime.pages import PageAllocator
from draftproof.runtime.prefix import PrefixCache
from draftproof.runtime.scheduler import (
    MOST_PREEMPTIONS,
    Admission,
    DecodeStep,
    Preemption,
    PromptStep,
    Scheduler,
    SchedulerRules,
)
from draftproof.runtime.sequence import Sequence
from draftproof.runtime.slots import SlotAllocator

PAGE_SIZE = 4
WINDOW = 2


def scheduler_of(
    pages: int = 40,
    slots: int = 3,
    prompt_chunk: int = 5,
    draft_slack: int = 3,
    snapshots: int = 0,
    snapshot_grain: int = 1,
) -> Scheduler:
    allocator = PageAllocator(pages, PAGE_SIZE)
    prefix = PrefixCache(allocator, SlotAllocator(snapshots)) if snapshots else None
    rules = SchedulerRules(
        prompt_chunk, WINDOW, draft_slack, snapshot_interval=16, snapshot_grain=snapshot_grain
    )
    return Scheduler(allocator, SlotAllocator(slots), rules, prefix)


def sequence_of(name: str, prompt: int = 6, max_tokens: int = 4) -> Sequence:
    return Sequence(name, tuple(range(1, prompt + 1)), max_tokens)


def admit_all(scheduler: Scheduler) -> list[Admission]:
    return list(iter(scheduler.admit, None))


def admitted(scheduler: Scheduler) -> list[Sequence]:
    return [admission.sequence for admission in admit_all(scheduler)]


def finish_prompt(sequence: Sequence) -> None:
    sequence.committed = sequence.prompt_rows
    sequence.output.append(7)


def decode(scheduler: Scheduler, tokens: int = 1) -> None:
    """Steps until all decoding sequences have got one token each, `tokens` times."""
    for _ in range(tokens):
        while isinstance(step := scheduler.next_step(), Preemption):
            scheduler.preempt(step.sequence)
        assert isinstance(step, DecodeStep)
        for sequence in step.sequences:
            sequence.output.append(7)
            sequence.committed += 1


def decode_until_it_gives_way(scheduler: Scheduler, sequence: Sequence) -> None:
    for _ in range(50):
        if sequence.slot < 0:
            return
        decode(scheduler)
        scheduler.check_integrity()
    pytest.fail(f"{sequence.request_id} does not give way")


def compute(scheduler: Scheduler, sequence: Sequence) -> list[int]:
    """Run a prompt to its end, taking every snapshot that is wanted; the lengths at which they were."""
    taken = []
    while sequence.in_prompt:
        step = scheduler.next_step()
        assert isinstance(step, PromptStep)
        step.sequence.committed += step.count
        if scheduler.checkpoint(step.sequence) is not None:
            taken.append(step.sequence.committed)
    sequence.output.append(7)
    scheduler.publish(sequence)
    return taken


def test_sequences_are_admitted_in_order_while_slots_last() -> None:
    scheduler = scheduler_of(slots=2)
    sequences = [sequence_of(name) for name in "abc"]
    for sequence in sequences:
        scheduler.add(sequence)
    assert admitted(scheduler) == sequences[:2]
    assert [sequence.slot for sequence in sequences] == [0, 1, -1]
    assert (scheduler.waiting, scheduler.running) == (1, tuple(sequences[:2]))
    scheduler.finish(sequences[0])
    assert admitted(scheduler) == [sequences[2]]
    assert sequences[2].slot == 0


def test_a_large_sequence_at_the_head_is_not_overtaken() -> None:
    scheduler = scheduler_of(pages=9, slots=3)
    first, large, small = sequence_of("first"), sequence_of("large", 20), sequence_of("small", 1, 1)
    for sequence in (first, large, small):
        scheduler.add(sequence)
    assert admitted(scheduler) == [first]
    scheduler.finish(first)
    assert admitted(scheduler) == [large]


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "slack"), [(6, 40, 3), (6, 1, 0), (1, 1, 0), (16, 1, 4), (5, 3, 9)]
)
def test_an_admission_takes_pages_for_the_prompt_and_one_step(
    prompt: int, max_tokens: int, slack: int
) -> None:
    """A window and the drafts past it, but never more than the whole life and its slack."""
    scheduler = scheduler_of(draft_slack=slack)
    sequence = sequence_of("a", prompt, max_tokens)
    scheduler.add(sequence)
    admit_all(scheduler)
    positions = min(prompt + 2 * WINDOW, prompt + max_tokens + slack)
    assert len(sequence.pages) == -(-positions // PAGE_SIZE)


def test_a_sequence_gets_pages_before_every_step_that_needs_them() -> None:
    scheduler = scheduler_of()
    sequence = sequence_of("a", prompt=6, max_tokens=30)
    scheduler.add(sequence)
    admit_all(scheduler)
    finish_prompt(sequence)
    for _ in range(20):
        before = len(sequence.pages)
        step = scheduler.next_step()
        assert isinstance(step, DecodeStep)
        assert len(sequence.pages) * PAGE_SIZE >= min(sequence.committed + 2 * WINDOW, 6 + 30 + 3)
        assert step.grown == ((sequence,) if len(sequence.pages) > before else ())
        sequence.output.append(7)
        sequence.committed += 1


def test_rows_in_flight_count() -> None:
    scheduler = scheduler_of()
    sequence = sequence_of("a", prompt=4, max_tokens=30)
    scheduler.add(sequence)
    admit_all(scheduler)
    finish_prompt(sequence)
    sequence.in_flight_rows = 2 * WINDOW
    scheduler.next_step()
    assert len(sequence.pages) * PAGE_SIZE == 4 + 4 * WINDOW


def test_a_sequence_that_never_fits_is_refused_at_once() -> None:
    scheduler = scheduler_of(pages=4)
    with pytest.raises(UsageError, match="request giant needs 4 pages of 4 positions, but there are 3"):
        scheduler.add(sequence_of("giant", prompt=7, max_tokens=4))
    assert not scheduler.has_work
    scheduler.check_integrity()


def test_a_prompt_goes_in_chunks_and_only_the_last_one_samples() -> None:
    scheduler = scheduler_of(prompt_chunk=5)
    sequence = sequence_of("a", prompt=12)
    scheduler.add(sequence)
    admit_all(scheduler)
    chunks = []
    while sequence.in_prompt:
        step = scheduler.next_step()
        assert isinstance(step, PromptStep)
        chunks.append((step.count, step.is_last))
        sequence.committed += step.count
    assert chunks == [(5, False), (5, False), (2, True)]


def test_prompt_chunks_and_decode_steps_take_turns() -> None:
    scheduler = scheduler_of(prompt_chunk=2)
    decoding, reading = sequence_of("d"), sequence_of("p", prompt=6)
    for sequence in (decoding, reading):
        scheduler.add(sequence)
    admit_all(scheduler)
    finish_prompt(decoding)
    kinds = []
    for _ in range(6):
        step = scheduler.next_step()
        kinds.append(type(step))
        if isinstance(step, PromptStep):
            assert step.sequence is reading
            reading.committed += step.count
    assert kinds == [PromptStep, DecodeStep, PromptStep, DecodeStep, PromptStep, DecodeStep]


def test_a_long_prompt_does_not_hold_back_a_short_one() -> None:
    scheduler = scheduler_of(prompt_chunk=4)
    long, short, late = sequence_of("long", 40), sequence_of("short", 8), sequence_of("late", 4)
    scheduler.add(long)
    scheduler.add(short)
    admit_all(scheduler)
    order = []
    for number in range(12):
        if number == 3:
            scheduler.add(late)
            admit_all(scheduler)
        step = scheduler.next_step()
        if isinstance(step, PromptStep):
            order.append(step.sequence.request_id)
            step.sequence.committed += step.count
    assert order[:7] == ["long", "short", "long", "short", "long", "late", "long"]


def test_decode_steps_hold_every_decoding_sequence_in_slot_order() -> None:
    scheduler = scheduler_of(slots=3)
    sequences = [sequence_of(name) for name in "abc"]
    for sequence in sequences:
        scheduler.add(sequence)
    admit_all(scheduler)
    scheduler.finish(sequences[0])
    late = sequence_of("late")
    scheduler.add(late)
    assert admitted(scheduler) == [late]
    for sequence in (*sequences[1:], late):
        finish_prompt(sequence)
    step = scheduler.next_step()
    assert isinstance(step, DecodeStep)
    assert step.sequences == (late, sequences[1], sequences[2])


def test_nothing_to_do() -> None:
    scheduler = scheduler_of()
    assert scheduler.next_step() is None
    assert scheduler.admit() is None
    assert not scheduler.has_work


def test_a_waiting_sequence_can_be_dropped() -> None:
    scheduler = scheduler_of(slots=1)
    running, waiting = sequence_of("r"), sequence_of("w")
    scheduler.add(running)
    scheduler.add(waiting)
    admit_all(scheduler)
    scheduler.finish(waiting)
    scheduler.finish(running)
    assert not scheduler.has_work
    assert (running.slot, running.pages) == (-1, ())
    scheduler.check_integrity()


def test_finishing_what_does_not_run_is_a_defect() -> None:
    scheduler = scheduler_of()
    sequence = sequence_of("a")
    scheduler.add(sequence)
    admit_all(scheduler)
    scheduler.finish(sequence)
    with pytest.raises(ValueError, match="not in list"):
        scheduler.finish(sequence)


def two_that_grow() -> tuple[Scheduler, Sequence, Sequence]:
    """Nine pages; each of the two needs eight for its whole life."""
    scheduler = scheduler_of(pages=10)
    old, young = sequence_of("old", 4, 24), sequence_of("young", 4, 24)
    for sequence in (old, young):
        scheduler.add(sequence)
    admit_all(scheduler)
    for sequence in (old, young):
        finish_prompt(sequence)
    return scheduler, old, young


def test_the_youngest_gives_way_and_is_computed_again_with_its_output() -> None:
    scheduler, old, young = two_that_grow()
    decode_until_it_gives_way(scheduler, young)
    assert (young.preemptions, young.committed, young.pages) == (1, 0, ())
    assert old.slot == 0
    produced = len(young.output)
    decode(scheduler, old.remaining)
    scheduler.finish(old)
    assert admitted(scheduler) == [young]
    assert young.prompt_rows == 4 + produced
    assert young.tokens(2, young.given) == (3, 4, *[7] * produced)


def test_a_preempted_sequence_is_before_all_that_came_later() -> None:
    scheduler, old, young = two_that_grow()
    for name in "xy":
        scheduler.add(sequence_of(name, 4, 24))
    scheduler.preempt(young)
    scheduler.preempt(old)
    assert admitted(scheduler)[:2] == [old, young]
    assert scheduler.counts.preemptions == 2


def test_a_sequence_that_gave_way_often_gets_its_whole_life_and_keeps_it() -> None:
    scheduler, old, young = two_that_grow()
    young.preemptions = MOST_PREEMPTIONS - 1
    scheduler.preempt(young)
    assert admitted(scheduler) == []
    decode(scheduler, old.remaining)
    scheduler.finish(old)
    late = sequence_of("late", 4, 24)
    scheduler.add(late)
    assert admitted(scheduler) == [young]
    assert len(young.pages) == -(-(4 + 24 + 3) // PAGE_SIZE)


def test_an_older_one_gives_way_to_a_sequence_that_keeps_its_whole_life() -> None:
    scheduler = scheduler_of(pages=12)
    old, young = sequence_of("old", 4, 24), sequence_of("young", 4, 24)
    young.preemptions = MOST_PREEMPTIONS
    for sequence in (old, young):
        scheduler.add(sequence)
    assert admitted(scheduler) == [old, young]
    for sequence in (old, young):
        finish_prompt(sequence)
    decode_until_it_gives_way(scheduler, old)
    assert (old.preemptions, young.preemptions) == (1, MOST_PREEMPTIONS)
    decode(scheduler, young.remaining)
    assert len(young.pages) == 8
    scheduler.finish(young)
    assert admitted(scheduler) == [old]


def test_kept_beginnings_go_before_anybody_gives_way() -> None:
    scheduler = scheduler_of(pages=12, snapshots=4)
    kept = sequence_of("kept", 18, 2)
    scheduler.add(kept)
    admit_all(scheduler)
    compute(scheduler, kept)
    scheduler.finish(kept)
    assert scheduler.pages.free < scheduler.pages.capacity
    sequence = Sequence("new", tuple(range(50, 58)), 30)
    scheduler.add(sequence)
    admit_all(scheduler)
    compute(scheduler, sequence)
    while sequence.remaining:
        decode(scheduler)
    assert scheduler.counts.preemptions == 0
    scheduler.finish(sequence)
    scheduler.reset_prefix()
    assert scheduler.pages.free == scheduler.pages.capacity


def test_snapshots_at_the_last_border_and_now_and_then_in_a_long_prompt() -> None:
    """The last border leaves the opening of the answer behind it."""
    scheduler = scheduler_of(snapshots=9)
    for name, rows, borders in (("short", 18, [8]), ("long", 60, [16, 32, 48, 52]), ("tiny", 11, [])):
        sequence = Sequence(name, tuple(hash((name, row)) for row in range(rows)), 4)
        scheduler.add(sequence)
        admit_all(scheduler)
        assert compute(scheduler, sequence) == borders
        scheduler.finish(sequence)


def test_snapshots_where_prompt_steps_end_anyway() -> None:
    """With a grain of the prompt chunk no prompt has more steps for them."""
    scheduler = scheduler_of(prompt_chunk=12, snapshots=9, snapshot_grain=12)
    for rows, borders, steps in ((18, [], 2), (21, [12], 2), (36, [24], 3), (60, [24, 48], 5)):
        sequence = Sequence("a", tuple(hash((rows, row)) for row in range(rows)), 4)
        scheduler.add(sequence)
        admit_all(scheduler)
        turns = scheduler._turns
        assert compute(scheduler, sequence) == borders
        assert scheduler._turns - turns == steps
        scheduler.finish(sequence)


def test_a_prompt_that_begins_alike_begins_where_the_snapshot_is() -> None:
    scheduler = scheduler_of(snapshots=4)
    first, second = sequence_of("first", 22, 4), sequence_of("second", 30, 4)
    scheduler.add(first)
    admit_all(scheduler)
    assert compute(scheduler, first) == [12]
    scheduler.add(second)
    (admission,) = admit_all(scheduler)
    assert admission.snapshot is not None
    assert (second.committed, second.cached_tokens) == (12, 12)
    assert second.pages[:3] == first.pages[:3]
    assert set(second.pages[3:]).isdisjoint(first.pages)
    assert (scheduler.counts.queried_tokens, scheduler.counts.hit_tokens) == (52, 12)
    scheduler.finish(first)
    scheduler.finish(second)
    scheduler.check_integrity()


def test_where_two_prompts_part_the_third_begins() -> None:
    scheduler = scheduler_of(snapshots=6)
    common = tuple(range(1, 12))
    for number, cached in enumerate((0, 0, 8)):
        sequence = Sequence(f"s{number}", (*common, *[number + 50] * 13), 4)
        scheduler.add(sequence)
        admit_all(scheduler)
        assert sequence.cached_tokens == cached
        taken = compute(scheduler, sequence)
        assert (8 in taken) == (number == 1)
        scheduler.finish(sequence)
    scheduler.check_integrity()


def test_a_finished_output_is_found_by_the_next_turn() -> None:
    """Its last page is filled in part, and is copied."""
    scheduler = scheduler_of(snapshots=4)
    first = sequence_of("first", 12, 9)
    scheduler.add(first)
    admit_all(scheduler)
    compute(scheduler, first)
    decode(scheduler, 6)
    assert scheduler.take_snapshot(first, 18) is not None
    scheduler.publish(first)
    pages = first.pages
    scheduler.finish(first)
    second = Sequence("second", (*first.prompt, *first.output, 5, 5, 5), 4)
    scheduler.add(second)
    (admission,) = admit_all(scheduler)
    assert (second.committed, second.cached_tokens) == (18, 18)
    assert second.pages[:4] == pages[:4]
    assert admission.copied_page == (pages[4], second.pages[4])
    scheduler.finish(second)
    scheduler.check_integrity()


def test_what_was_taken_of_a_dropped_sequence_is_never_found() -> None:
    scheduler = scheduler_of(snapshots=4)
    first, second = sequence_of("first", 22, 4), sequence_of("second", 22, 4)
    scheduler.add(first)
    admit_all(scheduler)
    while first.in_prompt:
        step = scheduler.next_step()
        assert isinstance(step, PromptStep)
        first.committed += step.count
        scheduler.checkpoint(first)
    assert first.taken
    scheduler.finish(first)
    scheduler.check_integrity()
    scheduler.add(second)
    assert admit_all(scheduler)[0].snapshot is None


def test_private_pages_are_those_of_one_holder() -> None:
    scheduler = scheduler_of(snapshots=4)
    first, second = sequence_of("first", 22, 4), sequence_of("second", 22, 4)
    scheduler.add(first)
    admit_all(scheduler)
    compute(scheduler, first)
    scheduler.add(second)
    admit_all(scheduler)
    assert scheduler.private_pages([second]) == list(second.pages[3:])


def test_checkpoints_are_ends_of_prompt_steps_whatever_the_chunk() -> None:
    for chunk in (1, 3, 4, 7, 100):
        scheduler = scheduler_of(prompt_chunk=chunk, snapshots=4)
        sequence = sequence_of("a", 41, 4)
        scheduler.add(sequence)
        admit_all(scheduler)
        ends = [0]
        while sequence.in_prompt:
            step = scheduler.next_step()
            assert isinstance(step, PromptStep)
            sequence.committed += step.count
            ends.append(sequence.committed)
        assert {16, 32} <= set(ends)
        assert all(end - begin <= chunk for begin, end in pairwise(ends))
