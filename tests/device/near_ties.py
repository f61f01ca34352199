"""Tell a near-tie from a defect where a text of bfloat16 steps parts from one of float32.

Rounding is measured: how far bfloat16 moves the logits of these texts at most. The most, not what it does
where two texts part: when rounding tips a router from one expert to another the logits move by several times
as much as they do elsewhere, and two ways of rounding tip it in different places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from draftproof.engine.request import Completion, Request
from draftproof.models.loading import LoadedModel
from tests.engine.near_ties import Parting, logits_of, part


def rounding_of_bfloat16(
    exact: LoadedModel, rounded: LoadedModel, requests: Sequence[Request], texts: Sequence[Completion]
) -> float:
    """The largest difference of a logit between the model in float32 and in bfloat16, over whole texts."""
    largest = 0.0
    for request, text in zip(requests, texts, strict=True):
        tokens = [*request.prompt_ids, *text.token_ids]
        far, near = (logits_of(model, tokens, len(tokens)) for model in (rounded, exact))
        first = len(request.prompt_ids) - 1
        largest = max(largest, float((far - near)[first:].abs().max()))
    return largest


def count_partings(
    exact: LoadedModel,
    rounding: float,
    requests: Sequence[Request],
    ones: Sequence[Completion],
    others: Sequence[Completion],
) -> int:
    """How many texts part; AssertionError for one that parts at no near-tie.

    Args:
        exact: the model in float32.
        rounding: of the other texts, in logits.
        requests: without penalties.
        ones: what they gave in float32.
        others: what they gave.
    """
    count = 0
    for request, one, other in zip(requests, ones, others, strict=True):
        parting = part(exact, request, one.token_ids, other.token_ids)
        if parting is None:
            continue
        count += 1
        parting = _with_rounding(parting, rounding / (request.parameters.temperature or 1.0))
        assert parting.is_near_tie, f"{request.request_id}: {parting}"
    return count


def _with_rounding(parting: Parting, rounding: float) -> Parting:
    return replace(parting, rounding=max(parting.rounding, rounding))
