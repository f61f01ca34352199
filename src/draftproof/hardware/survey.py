"""One model on every GPU of the table: how many of each it takes, and how fast they could be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.hardware.gpu import Gpu
from draftproof.hardware.gpu_table import GPUS
from draftproof.hardware.memory import budget_for, smallest_ranks
from draftproof.hardware.parallel import possible_ranks
from draftproof.hardware.roofline import (
    Deployment,
    Model,
    Speed,
    expected_accept_length,
    roofline,
)
from draftproof.hardware.sequence_cost import sequence_cost
from draftproof.hardware.state_layout import StateLayout
from draftproof.hardware.traffic import Workload

MOST_RANKS = 8
"""GPUs of one machine."""


@dataclass(frozen=True)
class SurveyRow:
    """One GPU.

    Attributes:
        gpu: its data.
        ranks: the fewest that hold the model and one sequence; None when one machine is not enough.
        plain: speed without drafts on so many; None when they are not enough.
        nextn: speed with drafts; None as well for a model without a head.
    """

    gpu: Gpu
    ranks: int | None
    plain: Speed | None = None
    nextn: Speed | None = None


def survey(
    model: Model,
    layout: StateLayout,
    draft_tokens: int,
    context: int,
    accept_length: float | None = None,
    gpus: Sequence[Gpu] = GPUS,
) -> tuple[SurveyRow, ...]:
    """Predicts one model on many GPUs, in the table's order.

    Args:
        model: sizes and shape.
        layout: how the stack keeps states.
        draft_tokens: K.
        context: tokens that one sequence should reach.
        accept_length: tokens per verify pass; None takes one to plan with.
        gpus: the GPUs.
    """
    candidates = [ranks for ranks in possible_ranks(model.shape, model.weights) if ranks <= MOST_RANKS]
    length = expected_accept_length(draft_tokens) if accept_length is None else accept_length
    return tuple(_row(model, layout, draft_tokens, context, length, gpu, candidates) for gpu in gpus)


def _row(
    model: Model,
    layout: StateLayout,
    draft_tokens: int,
    context: int,
    length: float,
    gpu: Gpu,
    candidates: Sequence[int],
) -> SurveyRow:
    costs = {ranks: sequence_cost(model.shape, layout, ranks) for ranks in candidates}
    ranks = smallest_ranks(
        lambda count: budget_for(gpu, count, model.weights, model.shape, costs[count]), candidates, context, 1
    )
    if ranks is None:
        return SurveyRow(gpu, None)
    line = roofline(model, Deployment(gpu, ranks), Workload(), (draft_tokens,) if draft_tokens else ())
    prediction = line.with_drafts(draft_tokens)
    nextn = prediction.at(min(max(length, 1.0), draft_tokens + 1.0)) if prediction else None
    return SurveyRow(gpu, ranks, line.plain_speed, nextn)
