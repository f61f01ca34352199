"""How metrics are called: by draftproof, and beside that by the stack whose boards are to go on working."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from draftproof.server.request_times import Duration

SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5)


class MetricsDialect(Enum):
    """Whose metric names are given beside draftproof's own."""

    VLLM = "vllm"
    SGLANG = "sglang"


@dataclass(frozen=True)
class HistogramName:
    """One distribution as it is published.

    Attributes:
        duration: what is measured.
        name: of the metric.
        documentation: its help line.
        buckets: upper borders.
    """

    duration: Duration
    name: str
    documentation: str
    buckets: tuple[float, ...] = SECONDS


OWN_HISTOGRAMS = (
    HistogramName(
        Duration.FIRST_TOKEN,
        "draftproof_time_to_first_token_seconds",
        "From a request's arrival to its first output token.",
    ),
    HistogramName(
        Duration.NEXT_TOKEN,
        "draftproof_inter_token_latency_seconds",
        "Between output tokens; tokens of one step share the time since the step before.",
    ),
    HistogramName(
        Duration.MEAN_TOKEN,
        "draftproof_time_per_output_token_seconds",
        "By request: time after the first tokens, divided by the tokens after them.",
    ),
    HistogramName(Duration.WHOLE, "draftproof_request_seconds", "From arrival to the last token."),
    HistogramName(
        Duration.QUEUED, "draftproof_request_queue_seconds", "From arrival to the first prompt step."
    ),
    HistogramName(
        Duration.PROMPT, "draftproof_request_prompt_seconds", "From the first prompt step to the first token."
    ),
    HistogramName(Duration.DECODE, "draftproof_request_decode_seconds", "From the first token to the last."),
    HistogramName(
        Duration.PROMPT_TOKENS, "draftproof_request_prompt_tokens", "Tokens of a request's prompt.", TOKENS
    ),
    HistogramName(
        Duration.OUTPUT_TOKENS, "draftproof_request_output_tokens", "Tokens of a request's output.", TOKENS
    ),
)

_COMPATIBLE_NAMES = {
    MetricsDialect.VLLM: {
        Duration.FIRST_TOKEN: "vllm:time_to_first_token_seconds",
        Duration.NEXT_TOKEN: "vllm:inter_token_latency_seconds",
        Duration.MEAN_TOKEN: "vllm:request_time_per_output_token_seconds",
        Duration.WHOLE: "vllm:e2e_request_latency_seconds",
        Duration.QUEUED: "vllm:request_queue_time_seconds",
        Duration.PROMPT: "vllm:request_prefill_time_seconds",
        Duration.DECODE: "vllm:request_decode_time_seconds",
        Duration.PROMPT_TOKENS: "vllm:request_prompt_tokens",
        Duration.OUTPUT_TOKENS: "vllm:request_generation_tokens",
    },
    MetricsDialect.SGLANG: {
        Duration.FIRST_TOKEN: "sglang:time_to_first_token_seconds",
        Duration.NEXT_TOKEN: "sglang:inter_token_latency_seconds",
        Duration.WHOLE: "sglang:e2e_request_latency_seconds",
        Duration.QUEUED: "sglang:queue_time_seconds",
    },
}


def histograms_of(dialect: MetricsDialect) -> tuple[HistogramName, ...]:
    """A stack's names for the distributions that it has too; the meaning is draftproof's."""
    names = _COMPATIBLE_NAMES[dialect]
    return tuple(
        HistogramName(own.duration, names[own.duration], own.documentation, own.buckets)
        for own in OWN_HISTOGRAMS
        if own.duration in names
    )
