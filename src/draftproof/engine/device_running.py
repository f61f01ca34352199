"""A request inside the engine on a GPU, and the steps that were launched with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.device.machine import StepTicket
from draftproof.engine.admission import RunningRequest
from draftproof.kernels.row_sampling.slot_sampling import RowChoice
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.draft_choice import Decision


@dataclass(eq=False)
class DeviceRunning(RunningRequest):
    """A request inside the engine.

    Attributes:
        in_flight: launched steps whose tokens have not been read; each adds at least one.
        head_is_whole: whether the MTP head has seen all rows; with a hole it would draft badly, so it drafts
            no more.
    """

    in_flight: int = 0
    head_is_whole: bool = True

    @property
    def may_go_on(self) -> bool:
        """Whether the steps in flight may leave it unfinished."""
        return self.sequence.remaining > self.in_flight

    @property
    def needs_host(self) -> bool:
        """Whether its next token depends on more than logits, temperature, truncation and noise, or its
        logits are asked for."""
        return self.context.changes_logits or self.request.parameters.logprobs is not None

    @property
    def draft_limit(self) -> int:
        """Most drafts of its next window."""
        return self.draft_tokens if self.head_is_whole else 0


@dataclass(frozen=True)
class Flight:
    """A launched step, whose rows it has, and how many drafts of each were decided on."""

    ticket: StepTicket
    batch: tuple[DeviceRunning, ...]
    decision: Decision

    @property
    def rows(self) -> int:
        """Of each sequence."""
        return self.decision.draft_tokens + 1


def choice_of(batch: Sequence[DeviceRunning]) -> RowChoice:
    """What the sampling of a batch must be able to do."""
    choices = [_choice(running.request.parameters) for running in batch]
    return max(choices, key=list(RowChoice).index)


def _choice(parameters: SamplingParameters) -> RowChoice:
    if parameters.is_greedy:
        return RowChoice.LARGEST
    whole = parameters.top_k <= 0 and parameters.top_p == 1.0 and parameters.min_p == 0.0
    return RowChoice.DRAWN if whole else RowChoice.TRUNCATED
