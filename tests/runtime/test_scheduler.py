"""The scheduler: first come first served, memory reserved for life, prompts in chunks between decodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.errors import UsageError
from draftproof.runtime.pages import PageAllocator
from draftproof.runtime.scheduler import DecodeStep, PromptStep, Scheduler
from draftproof.runtime.sequence import Sequence
from draftproof.runtime.slots import SlotAllocator

PAGE_SIZE = 4


def scheduler_of(pages: int = 40, slots: int = 3, prompt_chunk: int = 5, draft_slack: int = 3) -> Scheduler:
    return Scheduler(PageAllocator(pages, PAGE_SIZE), SlotAllocator(slots), prompt_chunk, draft_slack)


def sequence_of(name: str, prompt: int = 6, max_tokens: int = 4) -> Sequence:
    return Sequence(name, tuple(range(1, prompt + 1)), max_tokens)


def finish_prompt(sequence: Sequence) -> None:
    sequence.committed = len(sequence.prompt)
    sequence.output.append(7)


def test_sequences_are_admitted_in_order_while_slots_last() -> None:
    scheduler = scheduler_of(slots=2)
    sequences = [sequence_of(name) for name in "abc"]
    for sequence in sequences:
        scheduler.add(sequence)
    assert scheduler.admit() == sequences[:2]
    assert [sequence.slot for sequence in sequences] == [0, 1, -1]
    assert scheduler.admit() == []
    scheduler.finish(sequences[0])
    assert scheduler.admit() == [sequences[2]]
    assert sequences[2].slot == 0


def test_a_large_sequence_at_the_head_is_not_overtaken() -> None:
    scheduler = scheduler_of(pages=9, slots=3)
    first, large, small = sequence_of("first"), sequence_of("large", 20), sequence_of("small", 1, 1)
    for sequence in (first, large, small):
        scheduler.add(sequence)
    assert scheduler.admit() == [first]
    assert scheduler.admit() == []
    scheduler.finish(first)
    assert scheduler.admit() == [large]


@pytest.mark.parametrize(("prompt", "max_tokens", "slack"), [(6, 4, 3), (1, 1, 0), (5, 3, 0), (16, 1, 4)])
def test_pages_for_the_whole_life_and_the_drafts_past_its_end(
    prompt: int, max_tokens: int, slack: int
) -> None:
    scheduler = scheduler_of(draft_slack=slack)
    sequence = sequence_of("a", prompt, max_tokens)
    scheduler.add(sequence)
    scheduler.admit()
    assert len(sequence.pages) == -(-(prompt + max_tokens + slack) // PAGE_SIZE)


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
    scheduler.admit()
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
    scheduler.admit()
    finish_prompt(decoding)
    kinds = []
    for _ in range(6):
        step = scheduler.next_step()
        kinds.append(type(step))
        if isinstance(step, PromptStep):
            assert step.sequence is reading
            reading.committed += step.count
    assert kinds == [PromptStep, DecodeStep, PromptStep, DecodeStep, PromptStep, DecodeStep]


def test_decode_steps_hold_every_decoding_sequence_in_slot_order() -> None:
    scheduler = scheduler_of(slots=3)
    sequences = [sequence_of(name) for name in "abc"]
    for sequence in sequences:
        scheduler.add(sequence)
    scheduler.admit()
    scheduler.finish(sequences[0])
    late = sequence_of("late")
    scheduler.add(late)
    assert scheduler.admit() == [late]
    for sequence in (*sequences[1:], late):
        finish_prompt(sequence)
    step = scheduler.next_step()
    assert isinstance(step, DecodeStep)
    assert step.sequences == (late, sequences[1], sequences[2])


def test_nothing_to_do() -> None:
    scheduler = scheduler_of()
    assert scheduler.next_step() is None
    assert not scheduler.has_work


def test_a_waiting_sequence_can_be_dropped() -> None:
    scheduler = scheduler_of(slots=1)
    running, waiting = sequence_of("r"), sequence_of("w")
    scheduler.add(running)
    scheduler.add(waiting)
    scheduler.admit()
    scheduler.finish(waiting)
    scheduler.finish(running)
    assert not scheduler.has_work
    assert (running.slot, running.pages) == (-1, ())
    scheduler.check_integrity()


def test_finishing_what_does_not_run_is_a_defect() -> None:
    scheduler = scheduler_of()
    sequence = sequence_of("a")
    scheduler.add(sequence)
    scheduler.admit()
    scheduler.finish(sequence)
    with pytest.raises(ValueError, match="not in list"):
        scheduler.finish(sequence)


@given(st.data())
def test_random_lives_never_leak(data: st.DataObject) -> None:
    """Sequences of any size come, advance and are dropped at any stage; memory stays whole."""
    scheduler = scheduler_of(pages=14, slots=3, prompt_chunk=data.draw(st.integers(1, 7)))
    alive: list[Sequence] = []
    for number in range(data.draw(st.integers(0, 25), label="events")):
        event = data.draw(st.sampled_from(["add", "step", "step", "drop"]), label="event")
        if event == "add":
            sequence = sequence_of(f"s{number}", data.draw(st.integers(1, 20)), data.draw(st.integers(1, 6)))
            scheduler.add(sequence)
            alive.append(sequence)
        elif event == "drop" and alive:
            scheduler.finish(alive.pop(data.draw(st.integers(0, len(alive) - 1))))
        scheduler.admit()
        step = scheduler.next_step()
        if isinstance(step, PromptStep):
            step.sequence.committed += step.count
            if not step.sequence.in_prompt:
                step.sequence.output.append(1)
        elif isinstance(step, DecodeStep):
            for sequence in step.sequences:
                sequence.output.append(1)
                if sequence.remaining == 0:
                    scheduler.finish(sequence)
                    alive.remove(sequence)
        scheduler.check_integrity()
        running = [sequence for sequence in alive if sequence.slot >= 0]
        assert len({sequence.slot for sequence in running}) == len(running)
        pages = [page for sequence in running for page in sequence.pages]
        assert len(pages) == len(set(pages))
    for sequence in alive:
        scheduler.finish(sequence)
    assert not scheduler.has_work
    scheduler.check_integrity()
