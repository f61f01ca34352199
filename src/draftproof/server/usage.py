"""What an answer says about its cost and its drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.serving.messages import GenerationUsage


@dataclass(frozen=True)
class ChoiceUsage:
    """Cost of one choice.

    Attributes:
        prompt_index: of its prompt in the request; choices of one prompt share its tokens.
        usage: what the engine said.
        reasoning_tokens: of its output.
    """

    prompt_index: int
    usage: GenerationUsage
    reasoning_tokens: int = 0


def usage_of(choices: Sequence[ChoiceUsage]) -> dict[str, Any]:
    """OpenAI's `usage`; a prompt counts once, however many choices it has."""
    prompts = {choice.prompt_index: choice.usage for choice in reversed(choices)}
    prompt_tokens = sum(usage.prompt_tokens for usage in prompts.values())
    completion_tokens = sum(choice.usage.completion_tokens for choice in choices)
    accepted = sum(sum(choice.usage.acceptance.accepted) for choice in choices)
    proposed = sum(sum(choice.usage.acceptance.proposed) for choice in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in prompts.values())},
        "completion_tokens_details": {
            "reasoning_tokens": sum(choice.reasoning_tokens for choice in choices),
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": proposed - accepted,
        },
    }


def metrics_of(choices: Sequence[ChoiceUsage], draft_tokens: int) -> dict[str, Any] | None:
    """Times and acceptance of the drafts, in vLLM's shape; None when there are several choices.

    The figures obey sum(histogram) = steps, sum(j * histogram[j]) = accepted, rate = accepted / drafted and
    mean length = 1 + accepted / steps.

    Args:
        choices: of the request.
        draft_tokens: most drafts of one pass.
    """
    if len(choices) != 1:
        return None
    usage = choices[0].usage
    histogram = list(usage.histogram) + [0] * (draft_tokens + 1 - len(usage.histogram))
    steps = sum(histogram)
    accepted = sum(count * passes for count, passes in enumerate(histogram))
    drafted = sum(usage.acceptance.proposed)
    return {
        "queue_time_ms": round(usage.queued_seconds * 1e3, 3),
        "time_to_first_token_ms": round((usage.queued_seconds + usage.prompt_seconds) * 1e3, 3),
        "speculative_decoding": {
            "mean_acceptance_length": 1.0 + accepted / steps if steps else 1.0,
            "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
            "acceptance_histogram": histogram,
            "num_spec_steps": steps,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafted,
            "num_spec_tokens": draft_tokens,
        },
    }
