"""What a drafter is shown after a step, and how many drafts it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from draftproof.engine.admission import RunningRequest
from draftproof.engine.unseen_rows import MOST_UNSEEN_ROWS, SeenRun, shown_rows
from draftproof.runtime.sequence import Sequence as SequenceTokens
from draftproof.speculation.draft_choice import Decision, DraftChoice
from draftproof.speculation.drafter import CommittedRows, Drafter


@dataclass(frozen=True)
class CommittedRun:
    """Rows of one sequence that a step committed.

    Attributes:
        running: whose.
        rows: they.
        is_prompt: whether they are rows of a prompt.
        is_end: whether the output has ended.
        settled: rows that the recurrent state has taken in.
    """

    running: RunningRequest
    rows: SeenRun
    settled: int
    is_prompt: bool = False
    is_end: bool = False

    @property
    def sequence(self) -> SequenceTokens:
        """Whose."""
        return self.running.sequence


class Drafting:
    """The drafter's side of a step.

    A request without speculation is not shown to the drafter: its part of the drafter's cache stays behind,
    and is never read. Its prompt is shown when prompts are kept for others.

    Args:
        drafter: proposes tokens.
        choice: decides how many of them.
        keeps_prompts: whether state is kept for prompts that begin alike.
        device: of the rows.

    Attributes:
        decision: on the next step.
    """

    def __init__(
        self, drafter: Drafter, choice: DraftChoice, keeps_prompts: bool, device: torch.device
    ) -> None:
        self.decision = Decision(0, 0)
        self._drafter = drafter
        self._choice = choice
        self._keeps_prompts = keeps_prompts
        self._device = device

    def follow(self, runs: Sequence[CommittedRun], running: Iterable[RunningRequest]) -> None:
        """After a step: decide on the next windows, let the drafter see what was committed, have it propose.

        Rows after which no draft is wanted are shown later, many at a time.

        Args:
            runs: of the step.
            running: all requests of the engine; those of `runs` that end may be among them.
        """
        ended = {run.running.request.request_id for run in runs if run.is_end}
        for run in runs:
            run.sequence.drafts = ()
        followed = [run for run in runs if self._note(run)]
        decoding = [each for each in running if self._decodes(each, ended)]
        if decoding:
            self.decision = self._choice.choose([self._limit(each) for each in decoding])
        shown = [run for run in followed if self._is_shown(run)]
        if shown:
            self._show(shown)

    def is_steady(
        self, decision: Decision, drafts: Sequence[tuple[int, ...]], runs: Sequence[CommittedRun]
    ) -> bool:
        """Whether a step took what steps of its kind take: all windows were as wide as decided, and so are
        the next ones, which it drafted for.

        Args:
            decision: on the step.
            drafts: of its windows.
            runs: what it committed.
        """
        width = decision.draft_tokens
        return (
            decision.batch == len(drafts) == len(runs)
            and all(len(chain) == width for chain in drafts)
            and all(not run.is_end and self._wanted(run) == width for run in runs)
        )

    def _decodes(self, running: RunningRequest, ended: set[str]) -> bool:
        return not running.sequence.in_prompt and running.request.request_id not in ended

    def _note(self, run: CommittedRun) -> bool:
        """Whether the drafter follows a sequence; then these rows are among those that it will see. A drafter
        with a cache of its own sees every row or none: with a hole it would draft badly."""
        running, sequence = run.running, run.sequence
        if not running.draft_tokens and not (run.is_prompt and self._keeps_prompts):
            return False
        if self._drafter.keeps_rows and sequence.head_rows + len(running.unseen) != run.rows.start:
            return False
        running.unseen.add(run.rows)
        return True

    def _is_shown(self, run: CommittedRun) -> bool:
        if run.is_end:
            # Nobody drafts after them, but the output is kept if the drafter has seen all that its state has.
            return self._keeps_prompts and self._drafter.keeps_rows and run.settled > run.sequence.head_rows
        return run.is_prompt or self._wanted(run) > 0 or len(run.running.unseen) > MOST_UNSEEN_ROWS

    def _show(self, runs: Sequence[CommittedRun]) -> None:
        """Let the drafter see all rows of these sequences that it has not seen, and propose."""
        wanted = tuple(self._wanted(run) for run in runs)
        rows = shown_rows([run.running.unseen.take() for run in runs])
        committed = CommittedRows(
            sequences=tuple(run.sequence for run in runs),
            contexts=tuple(run.running.context for run in runs),
            starts=rows.starts,
            counts=rows.counts,
            hidden=rows.hidden,
            next_token_ids=torch.tensor(rows.following, device=self._device),
            wanted=wanted,
        )
        for run, drafts in zip(runs, self._drafter.propose(committed), strict=True):
            run.sequence.drafts = drafts
            run.sequence.head_rows = run.rows.start + len(run.rows.following)

    def _limit(self, running: RunningRequest) -> int:
        """Drafts that can be of use in its next window: the pass itself adds one token more than it
        accepts."""
        sequence = running.sequence
        seen = sequence.head_rows + len(running.unseen)
        if sequence.in_prompt or (self._drafter.keeps_rows and seen != sequence.committed):
            return 0
        return max(min(running.draft_tokens, sequence.remaining - 1), 0)

    def _wanted(self, run: CommittedRun) -> int:
        """Drafts of its next window."""
        return 0 if run.is_end else min(self._limit(run.running), self.decision.draft_tokens)
