"""How long each part of a request took, as the HTTP side sees it, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RequestEnd(Enum):
    """How a request ended; the value is a label of the metrics."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    """The client went away."""
    REFUSED = "refused"
    FAULT = "fault"
    DEADLINE = "deadline"
    STOPPED = "stopped"
    """The engine stopped, crashed or hangs."""
    QUEUE_FULL = "queue_full"

    @property
    def is_answer(self) -> bool:
        """Whether the client got the whole output."""
        return self in (RequestEnd.STOP, RequestEnd.LENGTH)


class Duration(Enum):
    """What is measured of a request, in seconds unless said otherwise."""

    FIRST_TOKEN = "first_token"
    """From the request's arrival to its first output token."""
    NEXT_TOKEN = "next_token"
    """Between output tokens; tokens that came together share the time since those before them."""
    MEAN_TOKEN = "mean_token"
    """Time after the first token, divided by the tokens after it."""
    WHOLE = "whole"
    """From arrival to the last token."""
    QUEUED = "queued"
    """From arrival to the first prompt step."""
    PROMPT = "prompt"
    """From the first prompt step to the first output token."""
    DECODE = "decode"
    """From the first output token to the last."""
    PROMPT_TOKENS = "prompt_tokens"
    """Tokens of the prompt, not seconds."""
    OUTPUT_TOKENS = "output_tokens"
    """Tokens of the output, not seconds."""


@dataclass(frozen=True)
class Observation:
    """One value of one distribution.

    Attributes:
        duration: which distribution.
        value: seconds, or tokens.
        count: how many times it counts.
    """

    duration: Duration
    value: float
    count: int = 1
