"""How fast decoding can be: bytes over bandwidth, and what the stacks of today add to it.

Three figures for every workload, from a bound to an expectation:

* ideal: bytes alone. No program on this hardware is faster;
* with all-reduces: the same and the time that ranks wait for each other;
* ordinary: the same and the kernels of a serving stack. Calibrated on public and own figures of vLLM 0.33 and
  SGLang 0.5.15 to 0.5.16 on H200, which it meets within about 20 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from draftproof.hardware.gpu import Gpu
from draftproof.hardware.shape import Shape
from draftproof.hardware.traffic import Traffic, Workload, step_traffic
from draftproof.hardware.weights import WeightTable

ALL_REDUCES_PER_LAYER = 2
"""After the mixer and after the MLP."""
KERNELS_PER_LAYER = 25.0
"""Measured: 1,013 kernels for 40 layers of a 35B model in vLLM 0.33, CUDA graphs on."""
DENSE_KERNELS_PER_LAYER = 18.0
"""The same without routing, alignment and summing of experts."""
SECONDS_PER_KERNEL = 2.7e-6
"""Fixed cost of one kernel inside a CUDA graph: start, ramp and drain."""
DRAFT_KERNELS = 30.0
"""Of one pass of the MTP head, choice of a token included."""
HOST_SECONDS = 0.3e-3
"""Of one step with drafts that the host spends between graphs: measured 0.2 to 0.4 ms."""
GOLDEN_ACCEPT_LENGTHS = {1: 1.93, 2: 2.73, 3: 3.39, 4: 3.97, 5: 4.41, 6: 4.80, 7: 5.04, 8: 5.21}
"""Tokens per verify pass by K: Qwen3.5-397B, coding, thinking on (SemiAnalysisAI/InferenceX)."""


@dataclass(frozen=True)
class Model:
    """What a prediction is about: the sizes of a model's weights and its shape."""

    weights: WeightTable
    shape: Shape


@dataclass(frozen=True)
class Deployment:
    """Where it runs: so many of one GPU, every layer split over all of them."""

    gpu: Gpu
    ranks: int = 1


@dataclass(frozen=True)
class StepTime:
    """The time of one step, and what it is made of; seconds.

    Attributes:
        traffic: bytes on one rank.
        reading: bytes over bandwidth.
        all_reduces: how many.
        waiting: time of all all-reduces.
        kernels: fixed costs of kernels and of the host, as an ordinary stack has them.
        sequences: sequences at once.
    """

    traffic: Traffic
    reading: float
    all_reduces: int
    waiting: float
    kernels: float
    sequences: int

    @property
    def with_all_reduces(self) -> float:
        """Reading and waiting."""
        return self.reading + self.waiting

    @property
    def ordinary(self) -> float:
        """Reading, waiting and kernels."""
        return self.reading + self.waiting + self.kernels


@dataclass(frozen=True)
class Speed:
    """Tokens per second of all sequences together.

    Attributes:
        ideal: bytes alone.
        with_all_reduces: and the waiting for each other.
        ordinary: and the kernels of an ordinary stack.
    """

    ideal: float
    with_all_reduces: float
    ordinary: float


def step_time(model: Model, place: Deployment, workload: Workload) -> StepTime:
    """The time of one step.

    Args:
        model: sizes and shape.
        place: the GPUs.
        workload: what is decoded; K = 0 is plain decoding.
    """
    traffic = step_traffic(model.weights, model.shape, workload, place.ranks)
    shape, drafts = model.shape, workload.draft_tokens
    passes = shape.layers + drafts * shape.head_layers
    reduces = ALL_REDUCES_PER_LAYER * passes if place.ranks > 1 else 0
    per_layer = KERNELS_PER_LAYER if shape.experts else DENSE_KERNELS_PER_LAYER
    kernels = shape.layers * per_layer + drafts * DRAFT_KERNELS
    host = HOST_SECONDS if drafts else 0.0
    return StepTime(
        traffic=traffic,
        reading=traffic.total / place.gpu.reachable_bandwidth.value,
        all_reduces=reduces,
        waiting=reduces * place.gpu.link.all_reduce.value,
        kernels=kernels * SECONDS_PER_KERNEL + host,
        sequences=workload.sequences,
    )


def speed(time: StepTime, accept_length: float) -> Speed:
    """Tokens per second, when every step emits so many tokens of each sequence (1.0 without drafts).

    Raises:
        ValueError: fewer tokens than the one that every pass yields.
    """
    if accept_length < 1.0:
        raise ValueError(f"every verify pass yields a token, {accept_length} is less")
    tokens = accept_length * time.sequences
    return Speed(tokens / time.reading, tokens / time.with_all_reduces, tokens / time.ordinary)


@dataclass(frozen=True)
class NextnPrediction:
    """NEXTN with one K.

    Attributes:
        draft_tokens: K.
        time: of one step.
        speeds: by accept length, rising; no length beyond K+1.
    """

    draft_tokens: int
    time: StepTime
    speeds: tuple[tuple[float, Speed], ...]

    def at(self, accept_length: float) -> Speed:
        """The speed at an accept length."""
        return speed(self.time, accept_length)

    @property
    def bound(self) -> float:
        """Tokens per second when every draft is accepted and nothing but bytes takes time."""
        return self.at(self.draft_tokens + 1.0).ideal


@dataclass(frozen=True)
class Roofline:
    """Plain decoding and NEXTN on one deployment.

    Attributes:
        place: the GPUs.
        workload: sequences, context and draft head; its K is not used.
        plain: one step without drafts.
        nextn: one prediction for each K; empty for a model without a head.
    """

    place: Deployment
    workload: Workload
    plain: StepTime
    nextn: tuple[NextnPrediction, ...]

    @property
    def plain_speed(self) -> Speed:
        """Tokens per second without speculation."""
        return speed(self.plain, 1.0)

    def with_drafts(self, draft_tokens: int) -> NextnPrediction | None:
        """The prediction for one K; None when there is none."""
        return next((each for each in self.nextn if each.draft_tokens == draft_tokens), None)


DRAFT_COUNTS = (1, 2, 3, 4, 5)
ACCEPT_LENGTHS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)


def roofline(
    model: Model,
    place: Deployment,
    workload: Workload | None = None,
    draft_counts: tuple[int, ...] = DRAFT_COUNTS,
    accept_lengths: tuple[float, ...] = ACCEPT_LENGTHS,
) -> Roofline:
    """Predicts plain decoding and NEXTN.

    Args:
        model: sizes and shape.
        place: the GPUs.
        workload: sequences, context, draft head; one sequence of 1,024 tokens when not given.
        draft_counts: the K to predict.
        accept_lengths: tokens per verify pass to predict; those beyond K+1 are left out.
    """
    base = workload or Workload()
    counts = draft_counts if model.shape.head_layers else ()
    predictions = []
    for count in counts:
        time = step_time(model, place, replace(base, draft_tokens=count))
        lengths = [length for length in accept_lengths if length <= count + 1]
        predictions.append(
            NextnPrediction(count, time, tuple((length, speed(time, length)) for length in lengths))
        )
    plain = step_time(model, place, replace(base, draft_tokens=0))
    return Roofline(place, base, plain, tuple(predictions))


def expected_accept_length(draft_tokens: int) -> float:
    """An accept length to plan with when none was measured: coding with thinking, on the 397B release."""
    known = GOLDEN_ACCEPT_LENGTHS.get(draft_tokens)
    return known if known is not None else max(GOLDEN_ACCEPT_LENGTHS.values())
