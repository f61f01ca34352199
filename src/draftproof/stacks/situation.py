"""Where a checkpoint is to be served: the GPUs, the parallelism, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from draftproof.hardware.gpu import Gpu


class CacheType(Enum):
    """What keys and values are kept as; both stacks know these names."""

    AUTO = "auto"
    """Whatever the stack chooses."""
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"


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
        cache_type: of keys and values, as the user asked for; a plan asks the stack for it by name.
    """

    gpu: Gpu | None = None
    tensor_parallel: int = 1
    draft_tokens: int = 3
    context: int = 32_768
    concurrency: int = 1
    accept_length: float | None = None
    measured: float | None = None
    cache_type: CacheType = CacheType.AUTO
