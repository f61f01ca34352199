"""Where a checkpoint is to be served: the GPUs, the parallelism, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.hardware.gpu import Gpu


@dataclass(frozen=True)
class Situation:
    """What the user said about the deployment.

    Attributes:
        gpu: one of the GPUs; None when the user named none.
        tensor_parallel: number of GPUs that a layer is split over.
        draft_tokens: drafts per verify pass (K).
        context: tokens of context that one sequence should reach.
        concurrency: sequences at once.
        accept_length: tokens per verify pass to predict with; None predicts for a range.
        measured: tokens per second that the user saw; None when not given.
    """

    gpu: Gpu | None = None
    tensor_parallel: int = 1
    draft_tokens: int = 3
    context: int = 32_768
    concurrency: int = 1
    accept_length: float | None = None
    measured: float | None = None
