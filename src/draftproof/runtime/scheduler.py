"""Decides what the next step computes, in integers only: admission by pages and slots, prompts in chunks,
decode together.

Pages for the whole life of a sequence are reserved when it is admitted, so a running sequence never waits
for memory. Prompt chunks and decode steps alternate while both are wanted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from draftproof.errors import UsageError
from draftproof.runtime.pages import PageAllocator
from draftproof.runtime.sequence import Sequence
from draftproof.runtime.slots import SlotAllocator


@dataclass(frozen=True)
class PromptStep:
    """Commit `count` prompt rows of one sequence, beginning at its committed length."""

    sequence: Sequence
    count: int

    @property
    def is_last(self) -> bool:
        """Whether the prompt is complete after this step, so that a token can be sampled."""
        return self.sequence.committed + self.count == self.sequence.prompt_rows


@dataclass(frozen=True)
class DecodeStep:
    """Verify the drafts (if any) of every decoding sequence and sample on."""

    sequences: tuple[Sequence, ...]


class Scheduler:
    """First come, first served.

    Args:
        pages: of attention state.
        slots: of recurrent state.
        prompt_chunk: most prompt rows of one step.
        draft_slack: positions past a sequence's end that drafts may write.
    """

    def __init__(
        self, pages: PageAllocator, slots: SlotAllocator, prompt_chunk: int, draft_slack: int
    ) -> None:
        self._pages = pages
        self._slots = slots
        self._prompt_chunk = prompt_chunk
        self._draft_slack = draft_slack
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._prompt_was_last = False

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence.

        Raises:
            UsageError: it could never be admitted.
        """
        needed = self._pages_of(sequence)
        if needed > self._pages.capacity:
            raise UsageError(
                f"request {sequence.request_id} needs {needed} pages of {self._pages.page_size} positions, "
                f"but there are {self._pages.capacity}",
                "Shorten the prompt, lower max_tokens, or give the engine more pages.",
            )
        self._waiting.append(sequence)

    def admit(self) -> list[Sequence]:
        """Move waiting sequences into free slots and pages; returns the new ones, with slot and pages set."""
        admitted = []
        while self._waiting and self._slots.free and self._pages.free >= self._pages_of(self._waiting[0]):
            sequence = self._waiting.popleft()
            sequence.slot = self._slots.allocate()
            sequence.pages = self._pages.allocate(self._pages_of(sequence))
            self._running.append(sequence)
            admitted.append(sequence)
        return admitted

    def next_step(self) -> PromptStep | DecodeStep | None:
        """What to compute now; None when nothing runs."""
        in_prompt = next((sequence for sequence in self._running if sequence.in_prompt), None)
        decoding = tuple(sequence for sequence in self._running if not sequence.in_prompt)
        if in_prompt is not None and not (decoding and self._prompt_was_last):
            self._prompt_was_last = True
            return PromptStep(in_prompt, min(self._prompt_chunk, in_prompt.prompt_rows - in_prompt.committed))
        self._prompt_was_last = False
        return DecodeStep(tuple(sorted(decoding, key=lambda sequence: sequence.slot))) if decoding else None

    def finish(self, sequence: Sequence) -> None:
        """Release what a sequence holds, waiting or running; unknown sequences are a defect (ValueError)."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
            return
        self._running.remove(sequence)
        self._pages.release(sequence.pages)
        self._slots.release(sequence.slot)
        sequence.pages, sequence.slot = (), -1

    @property
    def has_work(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._waiting or self._running)

    def check_integrity(self) -> None:
        """Pages and slots are whole; with nothing running, all of them are free."""
        self._pages.check_integrity()
        self._slots.check_integrity()
        all_free = self._pages.free == self._pages.capacity and self._slots.free == self._slots.num_slots
        if not self._running and not all_free:
            raise ValueError("pages or slots leaked")

    def _pages_of(self, sequence: Sequence) -> int:
        return self._pages.pages_for(len(sequence.prompt) + sequence.max_tokens + self._draft_slack)
