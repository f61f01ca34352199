"""An engine without a model, for tests of what stands around engines: it needs no torch and obeys.

Every step gives each running request one token; requests start in order, as many as there are slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import draftproof
from draftproof.engine.request import Request, RequestPhase, StepOutput
from draftproof.engine.status import EngineStatus
from draftproof.errors import DraftproofError, LogitsFault, UsageError
from draftproof.serving.factory import ServedEngine
from draftproof.serving.messages import EngineReady
from draftproof.speculation.acceptance import AcceptanceCounts, FinishReason
from draftproof.text.output_rules import OutputRules
from draftproof.text.tokenizer import Tokenizer

TINY = Path(draftproof.__file__).parent / "data" / "tiny"
WORD = "word "
"""The text of every token, as near as the tokenizer can do it."""
REFUSED_TOKEN = 13
"""A prompt with it is refused."""

Deed = Callable[["ScriptedEngine"], None]
"""Something that happens in a step, before its tokens."""


class ScriptedEngine:
    """See the module.

    Args:
        token_ids: the tokens that outputs are made of, in turn.
        slots: requests that run at a time.
        deeds: what happens in a step, by its number from 0.
        step_seconds: how long a step takes.
    """

    drafter_name = "none"

    def __init__(
        self,
        token_ids: tuple[int, ...],
        slots: int = 2,
        deeds: Mapping[int, Deed] | None = None,
        step_seconds: float = 0.0,
    ) -> None:
        self.acceptance = AcceptanceCounts()
        self.slots = slots
        self.step_seconds = step_seconds
        self.steps = 0
        self.resets = 0
        self.prefix_resets = 0
        self.live: dict[str, Request] = {}
        self.outputs: dict[str, list[int]] = {}
        self._token_ids = token_ids
        self._deeds = dict(deeds or {})

    @property
    def has_work(self) -> bool:
        return bool(self.live)

    @property
    def running(self) -> list[str]:
        """Requests that have a slot."""
        return list(self.live)[: self.slots]

    def add(self, request: Request) -> None:
        if REFUSED_TOKEN in request.prompt_ids:
            raise UsageError("the prompt is unlucky", "Try another one.")
        self.live[request.request_id] = request
        self.outputs[request.request_id] = []

    def abort(self, request_id: str) -> None:
        self.live.pop(request_id, None)

    def phase(self, request_id: str) -> RequestPhase:
        if request_id not in self.live:
            return RequestPhase.GONE
        return RequestPhase.STARTED if self.outputs[request_id] else RequestPhase.WAITING

    def step(self) -> tuple[StepOutput, ...]:
        number, self.steps = self.steps, self.steps + 1
        time.sleep(self.step_seconds)
        if number in self._deeds:
            self._deeds[number](self)
        outputs = tuple(self._next(name) for name in self.running)
        for output in outputs:
            self.acceptance += output.acceptance
        return outputs

    def reset(self) -> None:
        self.resets += 1
        self.live.clear()

    def reset_prefix_cache(self) -> None:
        self.prefix_resets += 1

    def status(self) -> EngineStatus:
        return EngineStatus(
            running=len(self.running), waiting=len(self.live) - len(self.running), steps=self.steps
        )

    def _next(self, name: str) -> StepOutput:
        request, output = self.live[name], self.outputs[name]
        token = self._token_ids[len(output) % len(self._token_ids)]
        output.append(token)
        reason = None
        if request.watcher is not None and request.watcher.push((token,)) is not None:
            reason = FinishReason.STOP
        elif len(output) == request.parameters.max_tokens:
            reason = FinishReason.LENGTH
        if reason is not None:
            del self.live[name]
        return StepOutput(name, (token,), (), reason, AcceptanceCounts.of_pass(2, 1, 2))


@dataclass(frozen=True)
class Fails:
    """The step raises this."""

    error: Exception

    def __call__(self, engine: ScriptedEngine) -> None:
        raise self.error


@dataclass(frozen=True)
class Loses:
    """The step finds the logits of these requests at fault and drops them."""

    names: tuple[str, ...]

    def __call__(self, engine: ScriptedEngine) -> None:
        for name in self.names:
            engine.abort(name)
        raise LogitsFault("logits are not numbers", (0,))


def hangs(engine: ScriptedEngine) -> None:
    """The step never ends."""
    while True:
        time.sleep(60)


class NoConstraints:
    """Refuses every rule."""

    def constraint(self, rules: OutputRules) -> Any:
        raise UsageError("the schema cannot be kept", "Write another one.")


def served(engine: ScriptedEngine) -> ServedEngine:
    """The engine with the embedded checkpoint's tokenizer around it."""
    ready = EngineReady(
        max_length=4096,
        max_sequences=engine.slots,
        vocabulary_size=4096,
        end_token_ids=(4066,),
        drafter_name=engine.drafter_name,
        draft_tokens=2,
        device="cpu",
    )
    return ServedEngine(engine, Tokenizer.load(TINY), NoConstraints(), ready)  # type: ignore[arg-type]


def word_tokens() -> tuple[int, ...]:
    """Tokens of `WORD`."""
    return tuple(Tokenizer.load(TINY).encode(WORD))


@dataclass(frozen=True)
class ScriptedFactory:
    """Makes a scripted engine in the engine process.

    Attributes:
        deeds: see `ScriptedEngine`; picklable.
        slots: see `ScriptedEngine`.
        step_seconds: see `ScriptedEngine`.
        error: raised instead of making an engine.
        simulated_accept_length: see `EngineReady`.
    """

    deeds: Mapping[int, Deed] = field(default_factory=dict)
    slots: int = 2
    step_seconds: float = 0.0
    error: DraftproofError | Exception | None = None
    simulated_accept_length: float | None = None

    def make(self, report: Callable[[str], None]) -> ServedEngine:
        report("making it up")
        if self.error is not None:
            raise self.error
        made = served(ScriptedEngine(word_tokens(), self.slots, self.deeds, self.step_seconds))
        return replace(made, ready=replace(made.ready, simulated_accept_length=self.simulated_accept_length))
