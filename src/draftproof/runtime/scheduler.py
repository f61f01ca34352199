"""Decides what the next step computes, in integers only: admission by pages and slots, prompts in chunks,
decode together, and what happens when pages run out.

Pages are allocated as sequences grow. When there are none left, kept prompts are forgotten first; then the
youngest running sequence gives up its state, and is computed again from its tokens later (its text stays the
same: noise is addressed by position). The oldest one always goes on, and a sequence that has given up often
enough gets all pages of its life before it runs again, so everybody comes to an end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from draftproof.errors import UsageError
from draftproof.runtime.pages import PageAllocator
from draftproof.runtime.prefix import PrefixCache, PrefixMatch
from draftproof.runtime.sequence import Sequence, TakenSnapshot
from draftproof.runtime.slots import SlotAllocator

MOST_PREEMPTIONS = 3
"""A sequence gives up its state so often; then it waits until all pages of its life are free."""
ANSWER_OPENING = 8
"""Last tokens of a prompt without a snapshot behind them: they open the answer, and the next prompt of the
same conversation often writes them otherwise."""
PROMPT_SNAPSHOTS = 8
"""Snapshots that a single prompt may fill the pool with, those where it branches off or ends not counted."""


@dataclass(frozen=True)
class SchedulerRules:
    """Sizes that the scheduler goes by.

    Attributes:
        prompt_chunk: most prompt rows of one step.
        window_rows: rows of the widest verify window (drafts + 1).
        draft_slack: positions past a sequence's end that drafts may write.
        snapshot_interval: a long prompt leaves a snapshot about every so many tokens.
        snapshot_grain: snapshots of prompts lie at multiples of so many tokens, rounded up to whole pages. A
            prompt step ends at each, so where a step costs much whatever its rows, it is the prompt chunk.
    """

    prompt_chunk: int
    window_rows: int
    draft_slack: int
    snapshot_interval: int = 512
    snapshot_grain: int = 1


@dataclass(frozen=True)
class Admission:
    """A sequence that has got slot and pages. Its state is to be made before the scheduler is asked again.

    Attributes:
        sequence: `committed` says how much of it is kept already.
        snapshot: the recurrent state to begin with; None for an empty one.
        copied_page: (from, to) of the page that begins with kept keys and values and goes on with others.
    """

    sequence: Sequence
    snapshot: int | None = None
    copied_page: tuple[int, int] | None = None


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
    """Verify the drafts (if any) of every decoding sequence and sample on.

    Attributes:
        sequences: in order of their slots.
        grown: those of the running sequences whose pages are more than they were at the last step.
    """

    sequences: tuple[Sequence, ...]
    grown: tuple[Sequence, ...] = ()


@dataclass(frozen=True)
class Preemption:
    """There are no pages for the next step: read what is in flight, or `preempt` this sequence, and ask
    again."""

    sequence: Sequence


@dataclass
class SchedulerCounts:
    """What has happened since the start.

    Attributes:
        preemptions: states given up.
        queried_tokens: prompt tokens that were looked up in the prefix cache.
        hit_tokens: those whose state was found.
    """

    preemptions: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0


class Scheduler:
    """First come, first served; prompts in progress take turns.

    Args:
        pages: of attention state.
        slots: of recurrent state.
        rules: sizes.
        prefix: keeps beginnings of prompts; None for no reuse. It shares `pages`.
    """

    def __init__(
        self,
        pages: PageAllocator,
        slots: SlotAllocator,
        rules: SchedulerRules,
        prefix: PrefixCache | None = None,
    ) -> None:
        self.pages = pages
        self.slots = slots
        self.prefix = prefix
        self.counts = SchedulerCounts()
        self._rules = rules
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._grown: list[Sequence] = []
        self._prompt_was_last = False
        self._arrivals = 0
        self._turns = 0

    @property
    def running(self) -> tuple[Sequence, ...]:
        """Sequences that hold a slot."""
        return tuple(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that wait for a slot."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._waiting or self._running)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence.

        Raises:
            UsageError: it could never be admitted.
        """
        needed = self.pages.pages_for(self._end_of(sequence))
        if needed > self.pages.capacity:
            raise UsageError(
                f"request {sequence.request_id} needs {needed} pages of {self.pages.page_size} positions, "
                f"but there are {self.pages.capacity}",
                "Shorten the prompt, lower max_tokens, or give the engine more pages.",
            )
        sequence.arrival = self._arrivals
        self._arrivals += 1
        self._waiting.append(sequence)

    def admit(self) -> Admission | None:
        """Give the sequence that waits longest a slot and pages for its prompt and one step; None when there
        is none, or no room. Nobody overtakes."""
        if not self._waiting or not self.slots.free:
            return None
        sequence = self._waiting[0]
        sequence.recomputed = len(sequence.output)
        match = self._match(sequence)
        pages = self._pages_to_begin(sequence, match)
        if pages is None and not self._running and self.prefix is not None:
            # All that is not free is held by the cache: what was matched must not stand in the way.
            self.prefix.clear()
            match = PrefixMatch()
            pages = self._pages_to_begin(sequence, match)
        if pages is None:
            return None
        self._waiting.popleft()
        self._begin(sequence, match, pages)
        copied = None if match.tail is None else (match.tail, pages[len(match.pages)])
        return Admission(sequence, match.snapshot, copied)

    def next_step(self) -> PromptStep | DecodeStep | Preemption | None:
        """What to compute now; None when nothing runs. Prompt chunks and decode steps alternate while both
        are wanted."""
        in_prompt = [sequence for sequence in self._running if sequence.in_prompt]
        decoding = [sequence for sequence in self._running if not sequence.in_prompt]
        if in_prompt and not (decoding and self._prompt_was_last):
            self._prompt_was_last = True
            return self._prompt_step(min(in_prompt, key=lambda sequence: sequence.turn))
        if not decoding:
            self._prompt_was_last = False
            return None
        for sequence in sorted(decoding, key=_arrival):
            if not self._grow(sequence):
                candidates = [each for each in self._running if each.preemptions < MOST_PREEMPTIONS]
                return Preemption(max(candidates, key=_arrival))
        self._prompt_was_last = False
        grown, self._grown = tuple(self._grown), []
        return DecodeStep(tuple(sorted(decoding, key=lambda sequence: sequence.slot)), grown)

    def preempt(self, sequence: Sequence) -> None:
        """Take a running sequence's state away; it waits for its turn, and is computed again."""
        self._release(sequence)
        sequence.preemptions += 1
        self.counts.preemptions += 1
        older = sum(1 for each in self._waiting if each.arrival < sequence.arrival)
        self._waiting.insert(older, sequence)

    def checkpoint(self, sequence: Sequence) -> int | None:
        """The snapshot in which its state is to be kept now, after a prompt step; None for none."""
        if sequence.committed not in sequence.checkpoints:
            return None
        return self.take_snapshot(sequence, sequence.committed)

    def take_snapshot(self, sequence: Sequence, position: int) -> int | None:
        """A snapshot for a sequence's state after so many leading tokens; None when there is no room, or
        too little would be gained. It stays out of reach of others until `publish`."""
        known = (sequence.cached_tokens or 0, *(each for each in sequence.checkpoints if each < position))
        gained = position - max(known)
        if self.prefix is None or gained < self.pages.page_size or position >= sequence.known:
            return None
        number = self.prefix.take_snapshot()
        if number is not None:
            sequence.taken.append(TakenSnapshot(position, number))
        return number

    def publish(self, sequence: Sequence) -> None:
        """Let others find the snapshots that were taken of a sequence: its logits were sound."""
        if self.prefix is None:
            return
        for taken in sequence.taken:
            pages = sequence.pages[: self.pages.pages_for(taken.position)]
            self.prefix.publish(sequence.tokens(0, taken.position + 1), pages, taken.number)
        sequence.taken.clear()

    def finish(self, sequence: Sequence) -> None:
        """Release what a sequence holds, waiting or running; unknown sequences are a defect (ValueError)."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
            return
        self._release(sequence)

    def private_pages(self, sequences: Iterable[Sequence]) -> list[int]:
        """Pages that nobody else holds."""
        return [page for each in sequences for page in each.pages if self.pages.holders(page) == 1]

    def reset_prefix(self) -> None:
        """Forget all kept beginnings; running sequences go on with the pages that they share."""
        if self.prefix is not None:
            self.prefix.clear()

    def check_integrity(self) -> None:
        """Every page, slot and snapshot has exactly the holders that the sequences and the cache say."""
        self.pages.check_integrity()
        self.slots.check_integrity()
        held = [page for sequence in self._running for page in sequence.pages]
        taken = sum(len(sequence.taken) for sequence in self._running)
        if self.prefix is not None:
            self.prefix.check_integrity()
            held += self.prefix.held_pages()
            taken += self.prefix.snapshots_kept
            if taken != self.prefix.snapshots_used:
                raise ValueError("a snapshot leaked")
        counted: dict[int, int] = {}
        for page in held:
            counted[page] = counted.get(page, 0) + 1
        if any(self.pages.holders(page) != count for page, count in counted.items()):
            raise ValueError("a page has other holders than it says")
        slots = self.slots.num_slots - self.slots.free
        if len(counted) != self.pages.capacity - self.pages.free or slots != len(self._running):
            raise ValueError("pages or slots leaked")

    def _end_of(self, sequence: Sequence) -> int:
        """Positions that a sequence can ever write."""
        return len(sequence.prompt) + sequence.max_tokens + self._rules.draft_slack

    def _positions(self, sequence: Sequence, committed: int) -> int:
        """Positions that the next step may write: a window, and the head's chain of drafts past it."""
        ahead = sequence.in_flight_rows + 2 * self._rules.window_rows
        return min(committed + ahead, self._end_of(sequence))

    def _match(self, sequence: Sequence) -> PrefixMatch:
        """What is kept of a sequence's beginning; at least one row is left to its prompt steps."""
        if self.prefix is None or sequence.prompt_rows < 2:
            return PrefixMatch()
        return self.prefix.match(sequence.tokens(0, sequence.given), sequence.prompt_rows - 1)

    def _pages_to_begin(self, sequence: Sequence, match: PrefixMatch) -> tuple[int, ...] | None:
        """Pages of an admission, or None. One page stays free for each running sequence, lest the first that
        grows takes the newcomer's state away."""
        whole_life = sequence.preemptions >= MOST_PREEMPTIONS
        end = self._end_of(sequence) if whole_life else self._positions(sequence, sequence.given)
        self.pages.share(match.pages)
        own = self.pages.pages_for(end) - len(match.pages)
        if not self._have(own + len(self._running), match.snapshot):
            self.pages.release(match.pages)
            return None
        return (*match.pages, *self.pages.allocate(own))

    def _begin(self, sequence: Sequence, match: PrefixMatch, pages: tuple[int, ...]) -> None:
        sequence.slot = self.slots.allocate()
        sequence.pages = pages
        sequence.committed = sequence.head_rows = match.position
        sequence.checkpoints = self._checkpoints(sequence, match)
        self._take_turn(sequence)
        self._running.append(sequence)
        if sequence.cached_tokens is None:
            sequence.cached_tokens = match.position
            self.counts.hit_tokens += match.position
            self.counts.queried_tokens += sequence.given if self.prefix is not None else 0

    def _checkpoints(self, sequence: Sequence, match: PrefixMatch) -> tuple[int, ...]:
        """Lengths to take snapshots at: where the prompt ends, where it branches off from another one, and
        now and then in between."""
        if self.prefix is None:
            return ()
        rows = sequence.prompt_rows
        grain = self.pages.pages_for(self._rules.snapshot_grain) * self.pages.page_size
        last, branch = ((each // grain) * grain for each in (rows - ANSWER_OPENING, match.branch))
        interval = max(self._rules.snapshot_interval, rows // PROMPT_SNAPSHOTS)
        interval = -(-interval // grain) * grain
        wanted = {last, branch, *range(interval, max(last, 0), interval)}
        return tuple(sorted(length for length in wanted if match.position < length < rows))

    def _prompt_step(self, sequence: Sequence) -> PromptStep:
        self._take_turn(sequence)
        begin = sequence.committed
        border = next((length for length in sequence.checkpoints if length > begin), sequence.prompt_rows)
        end = min(begin + self._rules.prompt_chunk, border, sequence.prompt_rows)
        return PromptStep(sequence, end - begin)

    def _take_turn(self, sequence: Sequence) -> None:
        sequence.turn = self._turns
        self._turns += 1

    def _grow(self, sequence: Sequence) -> bool:
        """See to it that the next step's rows have pages."""
        positions = self._positions(sequence, sequence.committed)
        missing = self.pages.pages_for(positions) - len(sequence.pages)
        if missing <= 0:
            return True
        if not self._have(missing):
            self.reset_prefix()
            if self.pages.free < missing:
                return False
        sequence.pages += self.pages.allocate(missing)
        if sequence not in self._grown:
            self._grown.append(sequence)
        return True

    def _have(self, count: int, spared: int | None = None) -> bool:
        if self.pages.free >= count:
            return True
        return self.prefix is not None and self.prefix.free_pages(count, spared)

    def _release(self, sequence: Sequence) -> None:
        """Give back all that a running sequence holds."""
        self._running.remove(sequence)
        if sequence in self._grown:
            self._grown.remove(sequence)
        for taken in sequence.taken:
            assert self.prefix is not None
            self.prefix.give_back(taken.number)
        sequence.taken.clear()
        self.pages.release(sequence.pages)
        self.slots.release(sequence.slot)
        sequence.pages, sequence.slot, sequence.drafts = (), -1, ()
        sequence.committed = sequence.head_rows = sequence.in_flight_rows = 0


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
