"""The engine loop: a step is verify, sample, accept, commit, draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from draftproof.engine.admission import RunningRequest, admitted
from draftproof.engine.logprobs import logprobs_of
from draftproof.engine.loop import EngineLoop
from draftproof.engine.request import Request, StepOutput, TokenLogprob
from draftproof.errors import EngineFault, UsageError
from draftproof.kernels.acceptance.host import count_accepted
from draftproof.models.qwen3_5 import Qwen35Model
from draftproof.runtime.sampler import SequenceRows, sample_rows
from draftproof.runtime.scheduler import DecodeStep, PromptStep, Scheduler
from draftproof.runtime.state_store import StateStore, WindowKind
from draftproof.speculation.acceptance import (
    AcceptanceCounts,
    FinishReason,
    TruncatedRun,
    truncate_emitted,
)
from draftproof.speculation.drafter import CommittedRows, Drafter


@dataclass(frozen=True)
class _Sampled:
    """Rows of one step that were sampled: each sequence's tokens, and the logits they came from.

    `first_rows[i]` is the row of `logits` where sequence i begins.
    """

    logits: Tensor
    first_rows: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _CommittedRun:
    """Rows of one sequence that a step committed.

    Attributes:
        row: index of the sequence in the step's batch.
        running: whose.
        start: position of the first row.
        following: token after each row.
    """

    row: int
    running: RunningRequest
    start: int
    following: tuple[int, ...]


class Engine(EngineLoop):
    """Runs requests over one model.

    Args:
        model: the target.
        store: owner of all sequence state.
        scheduler: decides each step.
        drafter: proposes tokens.
        draft_tokens: most drafts per window.
        max_length: longest prompt and output together.
    """

    def __init__(
        self,
        model: Qwen35Model,
        store: StateStore,
        scheduler: Scheduler,
        drafter: Drafter,
        draft_tokens: int,
        max_length: int,
        device: torch.device,
    ) -> None:
        self.model = model
        self.store = store
        self.drafter = drafter
        self.drafter_name = drafter.name
        self.max_length = max_length
        self.acceptance = AcceptanceCounts()
        self._scheduler = scheduler
        self._draft_tokens = draft_tokens
        self._device = device
        self._running: dict[str, RunningRequest] = {}

    def add(self, request: Request) -> None:
        if request.request_id in self._running:
            raise UsageError(f"request id {request.request_id} is in use")
        running = admitted(RunningRequest, request, self.model.spec, self.max_length, self._draft_tokens)
        self._scheduler.add(running.sequence)
        self._running[request.request_id] = running

    def abort(self, request_id: str) -> None:
        running = self._running.pop(request_id, None)
        if running is not None:
            self._scheduler.finish(running.sequence)

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def reset(self) -> None:
        running = [each.sequence.slot for each in self._running.values() if each.sequence.slot >= 0]
        self.store.abandon(running)
        for request_id in tuple(self._running):
            self.abort(request_id)
        self.check_integrity()

    def check_integrity(self) -> None:
        self._scheduler.check_integrity()

    @torch.inference_mode()
    def step(self) -> tuple[StepOutput, ...]:
        """Run one step; what it added to requests, in slot order. A fault drops the step's requests."""
        for sequence in self._scheduler.admit():
            self.store.open_slot(sequence.slot, sequence.pages)
        step = self._scheduler.next_step()
        if step is None:
            return ()
        try:
            return self._prompt_step(step) if isinstance(step, PromptStep) else self._decode_step(step)
        except EngineFault:
            # The state of the step's sequences has moved and cannot be trusted; all others are untouched.
            lost = (step.sequence,) if isinstance(step, PromptStep) else step.sequences
            self.store.abandon([sequence.slot for sequence in lost if sequence.slot >= 0])
            for sequence in lost:
                self.abort(sequence.request_id)
            raise

    def _find(self, request_id: str) -> RunningRequest:
        return self._running[request_id]

    def _prompt_step(self, step: PromptStep) -> tuple[StepOutput, ...]:
        running = self._running[step.sequence.request_id]
        sequence, is_last = step.sequence, step.is_last
        begin, end = sequence.committed, sequence.committed + step.count
        window = self.store.begin([sequence.slot], [step.count], WindowKind.EXTEND)
        rows = torch.tensor([sequence.prompt[begin:end]], device=self._device)
        hidden = self.model.forward(rows, window.window)
        window.commit([step.count])
        sequence.committed = end
        if not is_last:
            self._draft([_CommittedRun(0, running, begin, sequence.prompt[begin + 1 : end + 1])], hidden)
            return ()
        sampled = self._sample([running], hidden[:, -1], [()])
        run = self._take(running, sampled.tokens[0])
        outputs = (self._output(running, sampled, 0, run, AcceptanceCounts()),)
        if run.finish_reason is None:
            following = (*sequence.prompt[begin + 1 :], sequence.newest)
            self._draft([_CommittedRun(0, running, begin, following)], hidden)
        return outputs

    def _decode_step(self, step: DecodeStep) -> tuple[StepOutput, ...]:
        batch = [self._running[sequence.request_id] for sequence in step.sequences]
        drafts = [sequence.drafts for sequence in step.sequences]
        counts = [len(chain) + 1 for chain in drafts]
        width = max(counts)
        rows = torch.tensor(
            [
                [running.sequence.newest, *chain, *(0,) * (width - 1 - len(chain))]
                for running, chain in zip(batch, drafts, strict=True)
            ],
            device=self._device,
        )
        window = self.store.begin(
            [sequence.slot for sequence in step.sequences],
            counts,
            WindowKind.VERIFY if width > 1 else WindowKind.EXTEND,
        )
        hidden = self.model.forward(rows, window.window)
        sampled = self._sample(batch, _real_rows(hidden, counts), drafts)
        accepted = count_accepted(drafts, sampled.tokens)
        runs, passes = [], []
        for running, chain, tokens, right in zip(batch, drafts, sampled.tokens, accepted, strict=True):
            run = self._take(running, tokens[: right + 1])
            passed = AcceptanceCounts.of_pass(len(chain), right, run.kept)
            running.acceptance += passed
            self.acceptance += passed
            runs.append(run)
            passes.append(passed)
        committed = [right + 1 for right in accepted]
        starts = [running.sequence.committed for running in batch]
        window.commit(committed)
        for running, count in zip(batch, committed, strict=True):
            running.sequence.committed += count
        outputs = tuple(
            self._output(running, sampled, index, runs[index], passes[index])
            for index, running in enumerate(batch)
        )
        survivors = [
            _CommittedRun(row, running, starts[row], sampled.tokens[row][: committed[row]])
            for row, running in enumerate(batch)
            if runs[row].finish_reason is None
        ]
        self._draft(survivors, hidden)
        return outputs

    def _sample(
        self, batch: Sequence[RunningRequest], hidden: Tensor, drafts: Sequence[tuple[int, ...]]
    ) -> _Sampled:
        """Draw a token at every row; `hidden` is [rows of all sequences, hidden]."""
        logits = self.model.logits(hidden)
        windows = [SequenceRows(running.context, chain) for running, chain in zip(batch, drafts, strict=True)]
        tokens = sample_rows(logits, windows).tolist()
        first_rows, begin = [], 0
        for window in windows:
            first_rows.append(begin)
            begin += window.count
        borders = [*first_rows, begin]
        split = tuple(tuple(tokens[low:high]) for low, high in pairwise(borders))
        return _Sampled(logits, tuple(first_rows), split)

    def _take(self, running: RunningRequest, emitted: tuple[int, ...]) -> TruncatedRun:
        """Add emitted tokens to the output up to where it ends."""
        sequence = running.sequence
        run = truncate_emitted(emitted, len(sequence.output), running.end)
        watcher = running.request.watcher
        if watcher is not None:
            stopped_at = watcher.push(emitted[: run.kept])
            if stopped_at is not None:
                run = TruncatedRun(stopped_at + 1, FinishReason.STOP)
        kept = emitted[: run.kept]
        sequence.output.extend(kept)
        running.context.commit(kept)
        return run

    def _output(
        self,
        running: RunningRequest,
        sampled: _Sampled,
        index: int,
        run: TruncatedRun,
        passed: AcceptanceCounts,
    ) -> StepOutput:
        """Report what a step added; a finished request leaves the engine."""
        tokens = sampled.tokens[index][: run.kept]
        logprobs: tuple[TokenLogprob, ...] = ()
        if running.request.parameters.logprobs is not None and tokens:
            first = sampled.first_rows[index]
            logprobs = logprobs_of(
                sampled.logits[first : first + len(tokens)], tokens, running.request.parameters.logprobs
            )
        if run.finish_reason is not None:
            del self._running[running.request.request_id]
            self._scheduler.finish(running.sequence)
        return StepOutput(running.request.request_id, tokens, logprobs, run.finish_reason, passed)

    def _draft(self, runs: Sequence[_CommittedRun], hidden: Tensor) -> None:
        """Let the drafter see what was committed and propose; `hidden` is [batch, rows, hidden] of the whole
        step.

        A request without speculation is not shown to the drafter: its part of the drafter's cache stays
        behind, and is never read.
        """
        drafting = [run for run in runs if run.running.draft_tokens]
        if not drafting:
            return
        width = max(len(run.following) for run in drafting)
        rows = CommittedRows(
            sequences=tuple(run.running.sequence for run in drafting),
            contexts=tuple(run.running.context for run in drafting),
            starts=tuple(run.start for run in drafting),
            counts=tuple(len(run.following) for run in drafting),
            hidden=hidden if len(drafting) == hidden.shape[0] else hidden[[run.row for run in drafting]],
            next_token_ids=torch.tensor(
                [[*run.following, *(0,) * (width - len(run.following))] for run in drafting],
                device=self._device,
            ),
            wanted=tuple(self._wanted(run.running) for run in drafting),
        )
        for run, drafts in zip(drafting, self.drafter.propose(rows), strict=True):
            run.running.sequence.drafts = drafts

    def _wanted(self, running: RunningRequest) -> int:
        """Drafts that can still be of use: the pass itself adds one token more than it accepts."""
        if running.sequence.in_prompt:
            return 0
        return max(min(running.draft_tokens, running.sequence.remaining - 1), 0)


def _real_rows(hidden: Tensor, counts: Sequence[int]) -> Tensor:
    """[batch, rows, hidden] to [real rows, hidden]."""
    width = hidden.shape[1]
    if min(counts) == width:
        return hidden.flatten(0, 1)
    return torch.cat([hidden[index, :count] for index, count in enumerate(counts)])
