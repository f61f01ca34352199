"""What the API process and the engine process say to each other: frozen, picklable, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from draftproof.engine.request import TokenLogprob
from draftproof.engine.status import EngineStatus
from draftproof.runtime.sampling import SamplingParameters
from draftproof.speculation.acceptance import AcceptanceCounts, FinishReason
from draftproof.text.output_rules import OutputRules


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt to continue.

    Attributes:
        request_id: unique among the requests in the engine process.
        prompt_ids: at least one token.
        parameters: how to sample and when to stop.
        rules: what the output must look like; None for free text.
        draft_tokens: most drafts per window; None for the engine's choice, 0 for plain decoding.
        deadline_seconds: the request ends with an error when it is not finished so long after it came; None
            for no deadline.
        shows_special_tokens: special tokens appear in the text.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    parameters: SamplingParameters
    rules: OutputRules | None = None
    draft_tokens: int | None = None
    deadline_seconds: float | None = None
    shows_special_tokens: bool = False


@dataclass(frozen=True)
class Abort:
    """Drop a request; unknown ids are ignored."""

    request_id: str


@dataclass(frozen=True)
class ResetPrefixCache:
    """Forget all kept prompts that no running request uses."""


@dataclass(frozen=True)
class Stop:
    """End the engine process; what runs is dropped."""


EngineCommand = GenerationRequest | Abort | ResetPrefixCache | Stop


@dataclass(frozen=True)
class Progress:
    """The engine is being made.

    Attributes:
        message: what is being done, one line.
    """

    message: str


@dataclass(frozen=True)
class EngineReady:
    """The engine takes requests.

    Attributes:
        max_length: longest prompt and output together.
        max_sequences: sequences that run at a time.
        vocabulary_size: width of the logits.
        end_token_ids: tokens that end an output.
        drafter_name: what proposes tokens.
        draft_tokens: most drafts of one window.
        device: where it runs.
        simulated_accept_length: acceptance that is made up, for measurements on made-up weights; the text of
            every answer means nothing then. None when drafts are really judged.
        load_lines: what loading found, a line each.
        memory: what the engine process takes, and what it has room for, in one line.
        draft_policy: who decides how many drafts a window gets; empty when it is not known.
    """

    max_length: int
    max_sequences: int
    vocabulary_size: int
    end_token_ids: tuple[int, ...]
    drafter_name: str
    draft_tokens: int
    device: str
    simulated_accept_length: float | None = None
    load_lines: tuple[str, ...] = ()
    memory: str = ""
    draft_policy: str = ""


@dataclass(frozen=True)
class GenerationUsage:
    """What a request has cost so far.

    Attributes:
        prompt_tokens: of the request.
        cached_tokens: prompt tokens whose state was kept from earlier requests.
        completion_tokens: output tokens.
        acceptance: what happened to its drafts.
        histogram: how many verify passes accepted 0, 1, ... drafts.
        queued_seconds: between arrival and the first prompt step.
        prompt_seconds: between the first prompt step and the first output token.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    acceptance: AcceptanceCounts
    histogram: tuple[int, ...] = ()
    queued_seconds: float = 0.0
    prompt_seconds: float = 0.0


@dataclass(frozen=True)
class GenerationChunk:
    """What one step added to a request.

    Attributes:
        request_id: whose.
        text: whole characters only; a stop string and what follows it never appear.
        token_ids: new tokens; their text may come with a later chunk.
        logprobs: one per new token when asked for, else empty.
        usage: up to here.
        finish_reason: None until the last chunk.
        matched_stop: the stop string that ended the output, if one did.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    usage: GenerationUsage
    finish_reason: FinishReason | None = None
    matched_stop: str | None = None


class FailureKind(Enum):
    """Why a request ended without an answer."""

    REFUSED = "refused"
    """It cannot be carried out as it is: the client's mistake."""
    FAULT = "fault"
    """The engine computed something that cannot be right."""
    DEADLINE = "deadline"
    """Its time is over."""
    STOPPED = "stopped"
    """The engine stopped, crashed or hangs."""


@dataclass(frozen=True)
class GenerationFailure:
    """A request ended without an answer.

    Attributes:
        request_id: whose.
        kind: why.
        message: one line for the client.
    """

    request_id: str
    kind: FailureKind
    message: str


@dataclass(frozen=True)
class PrefixCacheReset:
    """Answer to `ResetPrefixCache`."""


@dataclass(frozen=True)
class Heartbeat:
    """The engine process lives; sent several times a second, between steps.

    Attributes:
        status: of the engine.
    """

    status: EngineStatus


@dataclass(frozen=True)
class EngineCrashed:
    """The last message of an engine process that cannot go on.

    Attributes:
        message: one line.
        exit_code: what the command line would exit with, when this ends the start.
    """

    message: str
    exit_code: int


EngineMessage = (
    Progress
    | EngineReady
    | GenerationChunk
    | GenerationFailure
    | PrefixCacheReset
    | Heartbeat
    | EngineCrashed
)
