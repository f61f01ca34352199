"""The engine on a GPU: steps are device programs, and the host launches one before it has read the last."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from draftproof.device.machine import StepMachine, StepRecord, StepTicket
from draftproof.device.state import SequenceRules
from draftproof.engine.admission import RunningRequest, admitted
from draftproof.engine.logprobs import logprobs_of
from draftproof.engine.loop import EngineLoop
from draftproof.engine.request import Request, StepOutput, TokenLogprob
from draftproof.errors import EngineFault, LogitsFault, UsageError
from draftproof.kernels.advance.state import EndFlag
from draftproof.kernels.row_sampling.slot_sampling import RowChoice
from draftproof.models.qwen3_5 import Qwen35Model
from draftproof.models.qwen3_5_mtp import MtpHead
from draftproof.runtime.sampler import SequenceRows, sample_rows
from draftproof.runtime.sampling import SamplingParameters
from draftproof.runtime.scheduler import DecodeStep, PromptStep, Scheduler
from draftproof.runtime.state_store import WindowKind
from draftproof.speculation.acceptance import (
    AcceptanceCounts,
    FinishReason,
    TruncatedRun,
    truncate_emitted,
)

STEPS_AHEAD = 1
"""Steps that are launched before the tokens of the last one are read."""


@dataclass(eq=False)
class _Running(RunningRequest):
    """A request inside the engine.

    Attributes:
        in_flight: launched steps whose tokens have not been read; each adds at least one.
    """

    in_flight: int = 0

    @property
    def may_go_on(self) -> bool:
        """Whether the steps in flight may leave it unfinished."""
        return self.sequence.remaining > self.in_flight

    @property
    def needs_host(self) -> bool:
        """Whether its next token depends on more than logits, temperature, truncation and noise, or its
        logits are asked for."""
        return self.context.changes_logits or self.request.parameters.logprobs is not None


@dataclass(frozen=True)
class _Flight:
    """A launched step and whose rows it has."""

    ticket: StepTicket
    batch: tuple[_Running, ...]


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
        max_length: longest prompt and output together.
    """

    def __init__(
        self,
        model: Qwen35Model,
        head: MtpHead | None,
        machine: StepMachine,
        scheduler: Scheduler,
        draft_tokens: int,
        max_length: int,
    ) -> None:
        self.model = model
        self.machine = machine
        self.max_length = max_length
        self.acceptance = AcceptanceCounts()
        self.drafter_name = "none" if head is None else "nextn"
        self._head = head
        self._scheduler = scheduler
        self._draft_tokens = draft_tokens
        self._device = model.embedding.device
        self._running: dict[str, _Running] = {}
        self._flights: deque[_Flight] = deque()
        self._held: list[StepOutput] = []
        self._faulty: list[str] = []

    def add(self, request: Request) -> None:
        if request.request_id in self._running:
            raise UsageError(f"request id {request.request_id} is in use")
        running = admitted(
            _Running, request, self.model.spec, self.max_length, self._draft_tokens, held_back=1
        )
        self._scheduler.add(running.sequence)
        self._running[request.request_id] = running

    def abort(self, request_id: str) -> None:
        running = self._running.pop(request_id, None)
        if running is not None:
            # A step in flight may still write into its slot and pages; whoever gets them writes later.
            self._scheduler.finish(running.sequence)

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work or bool(self._held)

    def reset(self) -> None:
        # Steps in flight go on; whatever they write is cleared after them, in the order of the stream.
        for left in (self._flights, self._held, self._faulty):
            left.clear()
        for running in tuple(self._running.values()):
            self._drop(running)
        self.machine.state.prompts.abandon([])
        self.check_integrity()

    def check_integrity(self) -> None:
        self._scheduler.check_integrity()

    @torch.inference_mode()
    def step(self) -> tuple[StepOutput, ...]:
        """Launch a step, and report what the one before it added, in slot order. A fault drops the requests
        whose logits mean nothing."""
        for sequence in self._scheduler.admit():
            self._open(self._running[sequence.request_id])
        step = self._scheduler.next_step()
        if isinstance(step, PromptStep):
            self._extend(step)
            return self._outputs(self._collect(STEPS_AHEAD))
        batch = [] if step is None else self._batch(step)
        if step is not None and any(running.needs_host for running in batch):
            return self._outputs(self._host_step(step))
        if batch:
            self._launch(batch)
        return self._outputs(self._collect(STEPS_AHEAD if batch else 0))

    def _find(self, request_id: str) -> _Running:
        return self._running[request_id]

    def _batch(self, step: DecodeStep) -> list[_Running]:
        """Sequences that may go on: those whose last token is in flight already are not launched again."""
        running = [self._running[sequence.request_id] for sequence in step.sequences]
        return [each for each in running if each.may_go_on]

    def _open(self, running: _Running) -> None:
        sequence, parameters = running.sequence, running.request.parameters
        rules = SequenceRules(
            newest=sequence.newest,
            max_tokens=sequence.max_tokens,
            min_tokens=parameters.min_tokens,
            draft_limit=running.draft_tokens,
            stop_token_ids=tuple(sorted(running.end.stop_token_ids)),
            parameters=parameters,
        )
        self.machine.state.open_slot(sequence.slot, sequence.pages, rules)

    def _extend(self, step: PromptStep) -> None:
        """Commit prompt rows; the head sees them too, so that its keys and values are complete."""
        running, state = self._running[step.sequence.request_id], self.machine.state
        sequence, prompts, slot = step.sequence, self.machine.state.prompts, step.sequence.slot
        begin, end = sequence.committed, sequence.committed + step.count
        window = prompts.begin([slot], [step.count], WindowKind.EXTEND)
        rows, following = (
            torch.tensor([sequence.prompt[begin + shift : end + shift]], device=self._device)
            for shift in (0, 1)
        )
        hidden = self.model.forward(rows, window.window)
        window.commit([step.count])
        if self._head is not None and running.draft_tokens:
            attention = prompts.attention_rows([slot], [begin], [step.count])
            self._head.last(following, hidden, attention, prompts.head_caches)
        state.progress.lengths[slot] = end
        sequence.committed = end

    def _launch(self, batch: Sequence[_Running]) -> None:
        slots = [running.sequence.slot for running in batch]
        ticket = self.machine.launch(slots, _drafts_of(batch), _choice_of(batch))
        for running in batch:
            running.in_flight += 1
        self._flights.append(_Flight(ticket, tuple(batch)))

    def _collect(self, leave: int) -> list[StepOutput]:
        """Read steps in flight until only `leave` are left."""
        outputs: list[StepOutput] = []
        while len(self._flights) > leave:
            flight = self._flights.popleft()
            for running in flight.batch:
                running.in_flight -= 1
            outputs += self._taken(flight.batch, self.machine.collect(flight.ticket))
        return outputs

    def _host_step(self, step: DecodeStep) -> list[StepOutput]:
        """A step whose tokens the host chooses, with all that was launched before it read first."""
        outputs = self._collect(0)
        alive = [each for each in step.sequences if each.request_id in self._running]
        batch = self._batch(DecodeStep(tuple(alive)))
        if not batch:
            return outputs
        slots, drafts, choice = [each.sequence.slot for each in batch], _drafts_of(batch), _choice_of(batch)
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
            sampled[rows] = sample_rows(logits[rows], windows)
        except EngineFault:
            # The step is half done: the state of its sequences cannot be trusted.
            self._held += outputs
            for running in batch:
                self._drop(running)
            raise
        # Drafting reuses the buffer of the logits.
        asked = [
            logits[place * (drafts + 1) :][: drafts + 1].clone()
            if running.request.parameters.logprobs is not None
            else None
            for place, running in enumerate(batch)
        ]
        records = self.machine.collect(self.machine.conclude(slots, drafts, choice, sampled))
        for running, record, rows_of_logits in zip(batch, records, asked, strict=True):
            outputs += self._taken_with_logits(running, record, rows_of_logits)
        return outputs

    def _taken(self, batch: Sequence[_Running], records: Sequence[StepRecord]) -> list[StepOutput]:
        return [
            output
            for running, record in zip(batch, records, strict=True)
            for output in self._taken_with_logits(running, record, None)
        ]

    def _taken_with_logits(
        self, running: _Running, record: StepRecord, logits: torch.Tensor | None
    ) -> list[StepOutput]:
        """What a record means for its request, which may have left since the launch."""
        request = running.request
        if self._running.get(request.request_id) is not running:
            return []
        if record.end & EndFlag.FAULT or not record.tokens:
            self._drop(running)
            self._faulty.append(request.request_id)
            return []
        run, passed = self._take(running, record)
        logprobs: tuple[TokenLogprob, ...] = ()
        tokens = record.tokens[: run.kept]
        if request.parameters.logprobs is not None and logits is not None:
            logprobs = logprobs_of(logits[: run.kept], tokens, request.parameters.logprobs)
        if run.finish_reason is not None:
            del self._running[request.request_id]
            self._scheduler.finish(running.sequence)
        return [StepOutput(request.request_id, tokens, logprobs, run.finish_reason, passed)]

    def _take(self, running: _Running, record: StepRecord) -> tuple[TruncatedRun, AcceptanceCounts]:
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
        if sequence.output:
            # The first token belongs to the prompt: its window verifies nothing.
            passed = AcceptanceCounts.of_pass(record.drafts, record.accepted, run.kept)
            running.acceptance += passed
            self.acceptance += passed
        sequence.output.extend(kept)
        sequence.committed = record.length
        running.context.commit(kept)
        return run, passed

    def _drop(self, running: _Running) -> None:
        """Lose a request to a fault; its pages may hold what is not a number."""
        if running.sequence.slot >= 0:
            self.machine.state.prompts.abandon([running.sequence.slot])
        self.abort(running.request.request_id)

    def _outputs(self, outputs: list[StepOutput]) -> tuple[StepOutput, ...]:
        """A step's outputs, and those that a fault held back; a fault of this step comes first."""
        self._held += outputs
        faulty, self._faulty = self._faulty, []
        if faulty:
            raise LogitsFault(f"no token can be chosen for request {', '.join(faulty)}", ())
        held, self._held = self._held, []
        return tuple(held)


def _drafts_of(batch: Sequence[_Running]) -> int:
    return max(running.draft_tokens for running in batch)


def _choice_of(batch: Sequence[_Running]) -> RowChoice:
    choices = [_choice(running.request.parameters) for running in batch]
    return max(choices, key=list(RowChoice).index)


def _choice(parameters: SamplingParameters) -> RowChoice:
    if parameters.is_greedy:
        return RowChoice.LARGEST
    whole = parameters.top_k <= 0 and parameters.top_p == 1.0 and parameters.min_p == 0.0
    return RowChoice.DRAWN if whole else RowChoice.TRUNCATED
