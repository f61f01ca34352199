"""The engine on a GPU: steps are device programs, and the host launches one before it has read the last."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter

import torch

from draftproof.device.machine import StepMachine, StepRecord
from draftproof.device.state import SequenceRules
from draftproof.engine.admission import admitted
from draftproof.engine.alarms import AlarmWatch
from draftproof.engine.counters import EngineCounters
from draftproof.engine.device_running import DeviceRunning, Flight, choice_of
from draftproof.engine.logprobs import logprobs_of
from draftproof.engine.loop import EngineLoop
from draftproof.engine.request import Request, StepOutput, TokenLogprob
from draftproof.engine.sound_rows import sample_sound_rows
from draftproof.errors import EngineFault, LogitsFault, UsageError
from draftproof.kernels.advance.state import EndFlag
from draftproof.kernels.row_sampling.slot_sampling import NO_TOKEN
from draftproof.models.qwen3_5 import Qwen35Model
from draftproof.models.qwen3_5_mtp import MtpHead
from draftproof.runtime.sampler import SequenceRows
from draftproof.runtime.scheduler import Admission, DecodeStep, Preemption, PromptStep, Scheduler
from draftproof.runtime.state_store import WindowKind
from draftproof.speculation.acceptance import (
    AcceptanceCounts,
    FinishReason,
    TruncatedRun,
    truncate_emitted,
)
from draftproof.speculation.draft_choice import Decision, DraftChoice

STEPS_AHEAD = 1
"""Steps that are launched before the tokens of the last one are read."""


class DeviceEngine(EngineLoop):
    """Runs requests as device steps.

    A request that needs the host for each token (penalties, bias, min_tokens, log probabilities) makes the
    steps that it takes part in stop at the logits; such steps are not launched ahead.

    Args:
        model: the target, for prompts.
        head: its MTP head, for prompts; None without speculation.
        machine: runs steps over the same weights.
        scheduler: decides each step.
        draft_tokens: most drafts per window.
        choice: decides how many of them a window gets.
        max_length: longest prompt and output together.
    """

    def __init__(
        self,
        model: Qwen35Model,
        head: MtpHead | None,
        machine: StepMachine,
        scheduler: Scheduler,
        draft_tokens: int,
        choice: DraftChoice,
        max_length: int,
    ) -> None:
        self.model = model
        self.machine = machine
        self.max_length = max_length
        self.acceptance = AcceptanceCounts()
        self.drafter_name = "none" if head is None else "nextn"
        self.choice = choice
        self.alarms = AlarmWatch()
        self._head = head
        self._scheduler = scheduler
        self._draft_tokens = draft_tokens
        self._device = model.embedding.device
        self._counters = EngineCounters()
        self._running: dict[str, DeviceRunning] = {}
        self._flights: deque[Flight] = deque()
        # The step that was read last and when, unless something else has run since.
        self._read: tuple[Decision, float] | None = None
        self._held: list[StepOutput] = []
        self._faulty: list[str] = []

    def add(self, request: Request) -> None:
        if request.request_id in self._running:
            raise UsageError(f"request id {request.request_id} is in use")
        running = admitted(
            DeviceRunning, request, self.model.spec, self.max_length, self._draft_tokens, held_back=1
        )
        self._scheduler.add(running.sequence)
        if not self._running:
            # The device has waited for it: the time since the last step is not the next one's.
            self._read = None
        self._running[request.request_id] = running

    def abort(self, request_id: str) -> None:
        running = self._running.pop(request_id, None)
        if running is not None:
            # A step in flight may still write into its slot and pages; whoever gets them writes later.
            self._scheduler.finish(running.sequence)
            self.alarms.left(request_id)

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work or bool(self._held)

    def reset(self) -> None:
        # Steps in flight go on; whatever they write is cleared after them, in the order of the stream.
        for left in (self._flights, self._held, self._faulty):
            left.clear()
        self._drop(tuple(self._running.values()))
        self.check_integrity()

    @torch.inference_mode()
    def step(self) -> tuple[StepOutput, ...]:
        """Launch a step, and report what the one before it added, in slot order. A fault drops the requests
        whose logits mean nothing."""
        for admission in iter(self._scheduler.admit, None):
            self._open(admission)
        step = self._next_step()
        self._counters.steps += step is not None
        if isinstance(step, PromptStep):
            self._read = None
            self._extend(step)
            return self._outputs(self._collect(STEPS_AHEAD))
        batch = [] if step is None else self._batch(step)
        if step is not None and any(running.needs_host for running in batch):
            return self._outputs(self._host_step(step))
        if batch:
            self._launch(batch)
        return self._outputs(self._collect(STEPS_AHEAD if batch else 0))

    def _find(self, request_id: str) -> DeviceRunning:
        return self._running[request_id]

    def _next_step(self) -> PromptStep | DecodeStep | None:
        """What to compute now. Before a sequence gives up its state, all that is in flight is read: it may
        be a part of its text, and may make room by ending others."""
        while isinstance(step := self._scheduler.next_step(), Preemption):
            if self._flights:
                self._held += self._collect(0)
            else:
                self._scheduler.preempt(step.sequence)
        if isinstance(step, DecodeStep):
            for sequence in step.grown:
                self.machine.state.set_pages(sequence.slot, sequence.pages)
        return step

    def _batch(self, step: DecodeStep) -> list[DeviceRunning]:
        """Sequences that may go on: those whose last token is in flight already are not launched again."""
        running = [self._running[sequence.request_id] for sequence in step.sequences]
        return [each for each in running if each.may_go_on]

    def _open(self, admission: Admission) -> None:
        """Make the state that an admitted sequence begins with."""
        sequence, state = admission.sequence, self.machine.state
        running = self._running[sequence.request_id]
        running.head_is_whole = True
        parameters = running.request.parameters
        rules = SequenceRules(
            newest=sequence.newest,
            max_tokens=sequence.remaining,
            min_tokens=parameters.min_tokens - len(sequence.output),
            draft_limit=running.draft_tokens,
            stop_token_ids=tuple(sorted(running.end.stop_token_ids)),
            parameters=parameters,
        )
        state.open_slot(sequence.slot, sequence.pages, rules)
        if admission.copied_page is not None:
            state.prompts.copy_page(*admission.copied_page)
        if admission.snapshot is not None:
            state.restore_snapshot(sequence.slot, admission.snapshot, sequence.committed)

    def _extend(self, step: PromptStep) -> None:
        """Commit prompt rows; the head sees them too, so that its keys and values are complete, also when
        only others that begin alike will draft."""
        running, state = self._running[step.sequence.request_id], self.machine.state
        sequence, prompts, slot = step.sequence, self.machine.state.prompts, step.sequence.slot
        begin, end = sequence.committed, sequence.committed + step.count
        window = prompts.begin([slot], [step.count], WindowKind.EXTEND)
        rows, following = (
            torch.tensor([sequence.tokens(begin + shift, end + shift)], device=self._device)
            for shift in (0, 1)
        )
        hidden = self.model.forward(rows, window.window)
        window.commit([step.count])
        if self._head is not None and (running.draft_tokens or self._scheduler.prefix is not None):
            attention = prompts.attention_rows([slot], [begin], [step.count])
            self._head.last(following, hidden, attention, prompts.head_caches)
        state.progress.lengths[slot] = end
        sequence.committed = end
        self._counters.prompt_tokens += step.count
        snapshot = self._scheduler.checkpoint(sequence)
        if snapshot is not None:
            prompts.save_snapshot(slot, snapshot)

    def _launch(self, batch: Sequence[DeviceRunning]) -> None:
        slots, decision = [running.sequence.slot for running in batch], self._decide(batch)
        ticket = self.machine.launch(slots, decision.draft_tokens, choice_of(batch))
        self._note_unseen(batch, decision.draft_tokens)
        flight = Flight(ticket, tuple(batch), decision)
        for running in batch:
            running.in_flight += 1
            running.sequence.in_flight_rows += flight.rows
        self._flights.append(flight)

    def _decide(self, batch: Sequence[DeviceRunning]) -> Decision:
        return self.choice.choose([running.draft_limit for running in batch])

    def _note_unseen(self, batch: Sequence[DeviceRunning], drafts: int) -> None:
        """A step without drafts does not run the head: from then on its sequences have a hole in its
        cache."""
        if drafts or self._head is None:
            return
        for running in batch:
            if running.head_is_whole:
                running.head_is_whole = False
                self.machine.state.rules.draft_limit[running.sequence.slot] = 0

    def _collect(self, leave: int) -> list[StepOutput]:
        """Read steps in flight until only `leave` are left."""
        outputs: list[StepOutput] = []
        while len(self._flights) > leave:
            flight = self._flights.popleft()
            for running in flight.batch:
                running.in_flight -= 1
                if running.sequence.slot >= 0:
                    running.sequence.in_flight_rows -= flight.rows
            records = self.machine.collect(flight.ticket)
            seconds = self._seconds_since_like_step(flight.decision)
            taken = [
                output
                for running, record in zip(flight.batch, records, strict=True)
                for output in self._taken(running, record, flight.rows)
            ]
            self._observe(flight.decision, seconds, taken)
            outputs += taken
        return outputs

    def _seconds_since_like_step(self, decision: Decision) -> float | None:
        """Steps run one after the other: what one takes is what lies between two that end, when nothing else
        has run and both were of the same form."""
        now, before = perf_counter(), self._read
        self._read = decision, now
        if before is None or before[0].batch != decision.batch:
            return None
        return now - before[1] if before[0].draft_tokens == decision.draft_tokens else None

    def _observe(self, decision: Decision, seconds: float | None, outputs: Sequence[StepOutput]) -> None:
        passed = sum((output.acceptance for output in outputs), start=AcceptanceCounts())
        self.choice.observe(decision, seconds, passed)

    def _host_step(self, step: DecodeStep) -> list[StepOutput]:
        """A step whose tokens the host chooses, with all that was launched before it read first."""
        outputs = self._collect(0)
        self._read = None
        alive = [each for each in step.sequences if each.request_id in self._running]
        batch = self._batch(DecodeStep(tuple(alive)))
        if not batch:
            return outputs
        slots, decision, choice = (
            [each.sequence.slot for each in batch],
            self._decide(batch),
            choice_of(batch),
        )
        drafts = decision.draft_tokens
        logits = self.machine.verify(slots, drafts, choice)
        windows = [
            SequenceRows(running.context, live)
            for running, live in zip(batch, self.machine.state.live_drafts(slots, drafts), strict=True)
        ]
        # Rows past a sequence's live drafts are dead: whatever stands there is not sampled.
        live_rows = [
            place * (drafts + 1) + row for place, window in enumerate(windows) for row in range(window.count)
        ]
        rows = torch.tensor(live_rows, device=self._device)
        sampled = torch.zeros(logits.shape[0], dtype=torch.int64, device=self._device)
        try:
            chosen = sample_sound_rows(logits[rows], windows)
        except EngineFault:
            # The step is half done: the state of its sequences cannot be trusted.
            self._held += outputs
            self._drop(batch)
            raise
        tokens = [
            NO_TOKEN if index in chosen.lost else token
            for index, row_tokens in enumerate(chosen.tokens)
            for token in row_tokens
        ]
        sampled[rows] = torch.tensor(tokens, device=self._device)
        # Drafting reuses the buffer of the logits.
        asked = [
            logits[place * (drafts + 1) :][: drafts + 1].clone()
            if running.request.parameters.logprobs is not None
            else None
            for place, running in enumerate(batch)
        ]
        records = self.machine.collect(self.machine.conclude(slots, drafts, choice, sampled))
        self._note_unseen(batch, drafts)
        taken = [
            output
            for running, record, rows_of_logits in zip(batch, records, asked, strict=True)
            for output in self._taken(running, record, drafts + 1, rows_of_logits)
        ]
        self._observe(decision, None, taken)
        return [*outputs, *taken]

    def _taken(
        self, running: DeviceRunning, record: StepRecord, rows: int, logits: torch.Tensor | None = None
    ) -> list[StepOutput]:
        """What a record of a step with so many rows means for its request, which may have left since the
        launch."""
        request = running.request
        if self._running.get(request.request_id) is not running:
            return []
        if record.end & EndFlag.FAULT or not record.tokens:
            self._drop([running])
            self._faulty.append(request.request_id)
            return []
        self._scheduler.publish(running.sequence)
        start = running.sequence.committed
        run, passed = self._take(running, record)
        logprobs: tuple[TokenLogprob, ...] = ()
        tokens = record.tokens[: run.kept]
        if request.parameters.logprobs is not None and logits is not None:
            logprobs = logprobs_of(logits[: run.kept], tokens, request.parameters.logprobs)
        if run.finish_reason is not None:
            # The host may have found the end before the device.
            running.sequence.after_end = (*record.tokens[run.kept :], *record.after_end)
            self._keep_output(running, start if rows > 1 else record.length, record)
            self.abort(request.request_id)
        self._counters.generated_tokens += len(tokens)
        cached = running.sequence.cached_tokens or 0
        return [StepOutput(request.request_id, tokens, logprobs, run.finish_reason, passed, cached)]

    def _keep_output(self, running: DeviceRunning, settled: int, record: StepRecord) -> None:
        """Keep the state of a finished output for the next turn of its conversation.

        Args:
            running: it.
            settled: rows that the recurrent state had taken in when the output ended.
            record: the last. Another step that was launched since has taken in all that it committed.
        """
        rows = [flight.rows for flight in self._flights if running in flight.batch]
        # A step of one row is certain of it: the state goes on to the row after the end.
        if len(rows) > 1 or 1 in rows or not (self._head is None or running.head_is_whole):
            return
        length = record.length if rows else settled
        snapshot = self._scheduler.take_snapshot(running.sequence, length)
        if snapshot is not None:
            self.machine.state.save_settled(running.sequence.slot, snapshot, length, record.end and len(rows))
            self._scheduler.publish(running.sequence)

    def _take(self, running: DeviceRunning, record: StepRecord) -> tuple[TruncatedRun, AcceptanceCounts]:
        """Add a record's tokens to the output up to where it ends; with what happened to its drafts."""
        sequence, tokens = running.sequence, record.tokens
        run = truncate_emitted(tokens, len(sequence.output), running.end)
        watcher = running.request.watcher
        if watcher is not None:
            stopped_at = watcher.push(tokens[: run.kept])
            if stopped_at is not None:
                run = TruncatedRun(stopped_at + 1, FinishReason.STOP)
        kept = tokens[: run.kept]
        passed = AcceptanceCounts()
        if sequence.committed > sequence.prompt_rows:
            # The first token belongs to the prompt: its window verifies nothing.
            passed = AcceptanceCounts.of_pass(record.drafts, record.accepted, run.kept)
            running.acceptance += passed
            self.acceptance += passed
            self.alarms.passed(running.request.request_id, passed)
        sequence.output.extend(kept)
        sequence.committed = record.length
        running.context.commit(kept)
        if not running.request.parameters.ignore_eos:
            # Who has to go on after the end may well go round in circles.
            self.alarms.wrote(running.request.request_id, sequence.output)
        return run, passed

    def _drop(self, dropped: Sequence[DeviceRunning]) -> None:
        """Let go of requests whose state cannot be trusted, and of all that is kept: it may be what they
        began with. Their pages may hold what is not a number."""
        self._counters.faults += len(dropped)
        self.alarms.lost(running.request.request_id for running in dropped)
        self._scheduler.reset_prefix()
        pages = self._scheduler.private_pages(running.sequence for running in dropped)
        self.machine.state.prompts.abandon(pages)
        for running in dropped:
            self.abort(running.request.request_id)

    def _outputs(self, outputs: list[StepOutput]) -> tuple[StepOutput, ...]:
        """A step's outputs, and those that a fault held back; a fault of this step comes first."""
        self._held += outputs
        faulty, self._faulty = self._faulty, []
        if faulty:
            raise LogitsFault(f"no token can be chosen for request {', '.join(faulty)}", ())
        held, self._held = self._held, []
        return tuple(held)
