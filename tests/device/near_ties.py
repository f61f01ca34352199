"""Tell a near-tie from a defect where a text of bfloat16 steps parts from one of float32.

Rounding is measured: how far bfloat16 moves the logits of the parting position, over the common text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from draftproof.engine.request import Completion, Request
from draftproof.models.loading import LoadedModel
from tests.engine.near_ties import Parting, logits_of, part


def part_in_bfloat16(
    exact: LoadedModel, rounded: LoadedModel, request: Request, one: Completion, other: Completion
) -> Parting | None:
    """Where two texts of a request part, or None when they are equal.

    Args:
        exact: the model in float32.
        rounded: the same in bfloat16.
        request: without penalties.
        one, other: what it gave.
    """
    parting = part(exact, request, one.token_ids, other.token_ids)
    if parting is None or parting.index >= min(len(one.token_ids), len(other.token_ids)):
        return parting
    tokens = [*request.prompt_ids, *one.token_ids[: parting.index]]
    far, near = (logits_of(model, tokens, len(tokens))[-1] for model in (rounded, exact))
    moved = float((far - near).abs().max()) / (request.parameters.temperature or 1.0)
    return replace(parting, rounding=max(parting.rounding, moved))


def count_partings(
    exact: LoadedModel,
    rounded: LoadedModel,
    requests: Sequence[Request],
    ones: Sequence[Completion],
    others: Sequence[Completion],
) -> int:
    """How many texts part; AssertionError for one that parts at no near-tie."""
    partings = [part_in_bfloat16(exact, rounded, *each) for each in zip(requests, ones, others, strict=True)]
    for request, parting in zip(requests, partings, strict=True):
        assert parting is None or parting.is_near_tie, f"{request.request_id}: {parting}"
    return sum(parting is not None for parting in partings)
