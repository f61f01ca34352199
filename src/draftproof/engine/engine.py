"""The engine loop: a step is verify, sample, accept, commit, draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from draftproof.engine.admission import RunningRequest, admitted
from draftproof.engine.alarms import AlarmWatch
from draftproof.engine.counters import EngineCounters
from draftproof.engine.drafting import CommittedRun, Drafting
from draftproof.engine.logprobs import logprobs_of
from draftproof.engine.loop import EngineLoop
from draftproof.engine.request import Request, StepOutput, TokenLogprob
from draftproof.engine.sound_rows import SampledRows, sample_sound_rows
from draftproof.engine.unseen_rows import SeenRun
from draftproof.errors import EngineFault, LogitsFault, UsageError
from draftproof.kernels.acceptance.host import count_accepted
from draftproof.models.qwen3_5 import Qwen35Model
from draftproof.runtime.sampler import SequenceRows
from draftproof.runtime.scheduler import Admission, DecodeStep, Preemption, PromptStep, Scheduler
from draftproof.runtime.sequence import Sequence as SequenceTokens
from draftproof.runtime.state_store import StateStore, WindowKind
from draftproof.speculation.acceptance import (
    AcceptanceCounts,
    FinishReason,
    TruncatedRun,
    truncate_emitted,
)
from draftproof.speculation.draft_choice import DraftChoice
from draftproof.speculation.drafter import Drafter


@dataclass(frozen=True)
class _Sampled:
    """Rows of one step that were sampled, and the logits they came from."""

    logits: Tensor
    rows: SampledRows


class Engine(EngineLoop):
    """Runs requests over one model.

    Args:
        model: the target.
        store: owner of all sequence state.
        scheduler: decides each step.
        drafter: proposes tokens.
        draft_tokens: most drafts per window.
        choice: decides how many of them a window gets.
        max_length: longest prompt and output together.
    """

    def __init__(
        self,
        model: Qwen35Model,
        store: StateStore,
        scheduler: Scheduler,
        drafter: Drafter,
        draft_tokens: int,
        choice: DraftChoice,
        max_length: int,
        device: torch.device,
    ) -> None:
        self.model = model
        self.store = store
        self.drafter = drafter
        self.drafter_name = drafter.name
        self.max_length = max_length
        self.acceptance = AcceptanceCounts()
        self.choice = choice
        self.alarms = AlarmWatch()
        self._drafting = Drafting(drafter, choice, scheduler.prefix is not None, device)
        self._scheduler = scheduler
        self._draft_tokens = draft_tokens
        self._device = device
        self._counters = EngineCounters()
        self._running: dict[str, RunningRequest] = {}
        self._held: list[StepOutput] = []
        self._faulty: list[str] = []

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
            self.alarms.left(request_id)

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work or bool(self._held)

    def reset(self) -> None:
        self._held.clear()
        self._faulty.clear()
        self._drop(tuple(self._running.values()))
        self.check_integrity()

    @torch.inference_mode()
    def step(self) -> tuple[StepOutput, ...]:
        """Run one step; what it added to requests, in slot order. A fault drops the requests whose logits
        mean nothing."""
        for admission in iter(self._scheduler.admit, None):
            self._open(admission)
        step = self._next_step()
        if step is not None:
            self._counters.steps += 1
            try:
                self._held += (
                    self._prompt_step(step) if isinstance(step, PromptStep) else self._decode_step(step)
                )
            except EngineFault:
                # The state of the step's sequences has moved and cannot be trusted; all others are untouched.
                sequences = (step.sequence,) if isinstance(step, PromptStep) else step.sequences
                self._drop([self._find(each.request_id) for each in sequences if each.slot >= 0])
                raise
        faulty, self._faulty = self._faulty, []
        if faulty:
            raise LogitsFault(f"no token can be chosen for request {', '.join(faulty)}", ())
        outputs, self._held = self._held, []
        return tuple(outputs)

    def _open(self, admission: Admission) -> None:
        """Make the state that an admitted sequence begins with."""
        sequence = admission.sequence
        self._running[sequence.request_id].unseen.clear()
        self.store.open_slot(sequence.slot, sequence.pages)
        if admission.copied_page is not None:
            self.store.copy_page(*admission.copied_page)
        if admission.snapshot is not None:
            self.store.restore_snapshot(sequence.slot, admission.snapshot, sequence.committed)

    def _next_step(self) -> PromptStep | DecodeStep | None:
        while isinstance(step := self._scheduler.next_step(), Preemption):
            self._scheduler.preempt(step.sequence)
        if isinstance(step, DecodeStep):
            for sequence in step.grown:
                self.store.set_pages(sequence.slot, sequence.pages)
        return step

    def _lose(self, lost: Sequence[RunningRequest]) -> None:
        """Drop requests whose logits mean nothing; the step says so at its end."""
        if lost:
            self._faulty += [running.request.request_id for running in lost]
            self._drop(lost)

    def _drop(self, dropped: Sequence[RunningRequest]) -> None:
        """Let go of requests whose state cannot be trusted, and of all that is kept: it may be what they
        began with."""
        self._counters.faults += len(dropped)
        self.alarms.lost(running.request.request_id for running in dropped)
        self._scheduler.reset_prefix()
        self.store.abandon(self._scheduler.private_pages(running.sequence for running in dropped))
        for running in dropped:
            self.abort(running.request.request_id)

    def _find(self, request_id: str) -> RunningRequest:
        return self._running[request_id]

    def _prompt_step(self, step: PromptStep) -> list[StepOutput]:
        running = self._running[step.sequence.request_id]
        sequence, is_last = step.sequence, step.is_last
        begin, end = sequence.committed, sequence.committed + step.count
        window = self.store.begin([sequence.slot], [step.count], WindowKind.EXTEND)
        rows = torch.tensor([sequence.tokens(begin, end)], device=self._device)
        hidden = self.model.forward(rows, window.window)
        window.commit([step.count])
        sequence.committed = end
        self._counters.prompt_tokens += step.count
        outputs: list[StepOutput] = []
        is_end = False
        if is_last:
            sampled = self._sample([running], hidden[:, -1], [()])
            if sampled.rows.lost:
                self._lose([running])
                return []
            self._scheduler.publish(sequence)
            run = self._take(running, sampled.rows.tokens[0])
            outputs.append(self._output(running, sampled, 0, run, AcceptanceCounts()))
            is_end = run.finish_reason is not None
        seen = SeenRun(begin, hidden[0], sequence.tokens(begin + 1, end + 1))
        committed = CommittedRun(running, seen, settled=end, is_prompt=True, is_end=is_end)
        self._drafting.follow([committed], self._running.values())
        snapshot = self._scheduler.checkpoint(sequence)
        if snapshot is not None:
            self.store.save_snapshot(sequence.slot, snapshot)
        self._finish([committed])
        return outputs

    def _decode_step(self, step: DecodeStep) -> list[StepOutput]:
        began, decision = perf_counter(), self._drafting.decision
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
        accepted = count_accepted(drafts, sampled.rows.tokens)
        window.commit([right + 1 for right in accepted])
        outputs, runs, all_passed = [], [], AcceptanceCounts()
        for index, (running, right) in enumerate(zip(batch, accepted, strict=True)):
            if index in sampled.rows.lost:
                continue
            start, tokens = running.sequence.committed, sampled.rows.tokens[index][: right + 1]
            running.sequence.committed += right + 1
            seen = SeenRun(start, hidden[index, : right + 1], tokens)
            run = self._take(running, tokens)
            passed = AcceptanceCounts.of_pass(len(drafts[index]), right, run.kept)
            running.acceptance += passed
            all_passed += passed
            self.alarms.passed(running.request.request_id, passed)
            outputs.append(self._output(running, sampled, index, run, passed))
            is_end = run.finish_reason is not None
            settled = self.store.settled_length(running.sequence.slot)
            runs.append(CommittedRun(running, seen, settled, is_end=is_end))
        self.acceptance += all_passed
        self._drafting.follow(runs, self._running.values())
        steady = self._drafting.is_steady(decision, drafts, runs)
        self.choice.observe(decision, perf_counter() - began if steady else None, all_passed)
        self._finish(runs)
        self._lose([batch[index] for index in sorted(sampled.rows.lost)])
        return outputs

    def _sample(
        self, batch: Sequence[RunningRequest], hidden: Tensor, drafts: Sequence[tuple[int, ...]]
    ) -> _Sampled:
        """Draw a token at every row; `hidden` is [rows of all sequences, hidden]."""
        logits = self.model.logits(hidden)
        windows = [SequenceRows(running.context, chain) for running, chain in zip(batch, drafts, strict=True)]
        return _Sampled(logits, sample_sound_rows(logits, windows))

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
        if not running.request.parameters.ignore_eos:
            # Who has to go on after the end may well go round in circles.
            self.alarms.wrote(running.request.request_id, sequence.output)
        return run

    def _output(
        self,
        running: RunningRequest,
        sampled: _Sampled,
        index: int,
        run: TruncatedRun,
        passed: AcceptanceCounts,
    ) -> StepOutput:
        """Report what a step added."""
        tokens = sampled.rows.tokens[index][: run.kept]
        logprobs: tuple[TokenLogprob, ...] = ()
        if running.request.parameters.logprobs is not None and tokens:
            first = sampled.rows.first_rows[index]
            logprobs = logprobs_of(
                sampled.logits[first : first + len(tokens)], tokens, running.request.parameters.logprobs
            )
        cached = running.sequence.cached_tokens or 0
        self._counters.generated_tokens += len(tokens)
        return StepOutput(running.request.request_id, tokens, logprobs, run.finish_reason, passed, cached)

    def _finish(self, runs: Sequence[CommittedRun]) -> None:
        """Requests whose output has ended leave the engine."""
        for run in runs:
            if run.is_end:
                self._keep_output(run.sequence)
                self.abort(run.running.request.request_id)

    def _keep_output(self, sequence: SequenceTokens) -> None:
        """Keep the state of a finished output for the next turn of its conversation: as it was before its
        last window, up to where the drafter has seen it."""
        length = self.store.settled_length(sequence.slot)
        if self.drafter.keeps_rows and sequence.head_rows < length:
            return
        snapshot = self._scheduler.take_snapshot(sequence, length)
        if snapshot is not None:
            self.store.save_snapshot(sequence.slot, snapshot)
            self._scheduler.publish(sequence)


def _real_rows(hidden: Tensor, counts: Sequence[int]) -> Tensor:
    """[batch, rows, hidden] to [real rows, hidden]."""
    width = hidden.shape[1]
    if min(counts) == width:
        return hidden.flatten(0, 1)
    return torch.cat([hidden[index, :count] for index, count in enumerate(counts)])
