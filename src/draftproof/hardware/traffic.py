"""Bytes that one step must read and write, by what they are for: the floor under every step's time.

A step verifies a window of K+1 rows (one row without speculation) and drafts K tokens. Weights are read once
a step whatever the number of rows, routed experts as far as rows choose different ones: with E experts, k a
row and independent choice, N rows meet E(1-(1-k/E)^N) of them. Neighbouring rows of real text share more, so
this is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from draftproof.architecture.tensor_plan import ModelPart, TensorGroup
from draftproof.hardware.sequence_cost import key_value_bytes
from draftproof.hardware.shape import Shape
from draftproof.hardware.weights import WeightGroup, WeightTable

STATE_BYTES = 4
"""Of one element of the recurrent state: float32, as every release's config asks."""


@dataclass(frozen=True)
class Workload:
    """What is decoded.

    Attributes:
        draft_tokens: drafts per verify pass (K); 0 is plain decoding.
        sequences: sequences at once.
        context: tokens before the step, of each.
        draft_rows: rows of the output head that drafts are chosen from; None for the whole vocabulary.
        cache_bytes: of one element of keys and values.
    """

    draft_tokens: int = 0
    sequences: int = 1
    context: int = 1024
    draft_rows: int | None = None
    cache_bytes: int = 2

    @property
    def rows(self) -> int:
        """Rows of one verify pass, of all sequences."""
        return self.sequences * (self.draft_tokens + 1)


@dataclass(frozen=True)
class TrafficItem:
    """Bytes for one purpose.

    Attributes:
        label: what for: "routed experts", "Gated DeltaNet", "draft: output head".
        nbytes: on one rank.
        is_draft: they belong to drafting, not to the verify pass.
    """

    label: str
    nbytes: float
    is_draft: bool = False


@dataclass(frozen=True)
class Traffic:
    """Everything that one step moves on one rank."""

    items: tuple[TrafficItem, ...]

    @property
    def total(self) -> float:
        """Bytes of a whole step."""
        return sum(item.nbytes for item in self.items)

    @property
    def verify(self) -> float:
        """Bytes of the target's pass."""
        return sum(item.nbytes for item in self.items if not item.is_draft)

    @property
    def draft(self) -> float:
        """Bytes of drafting."""
        return sum(item.nbytes for item in self.items if item.is_draft)


def distinct_experts(experts: int, per_token: int, rows: int) -> float:
    """Experts that are met by so many rows, each choosing `per_token` of them independently."""
    return experts * (1.0 - (1.0 - per_token / experts) ** rows)


def step_traffic(weights: WeightTable, shape: Shape, workload: Workload, ranks: int = 1) -> Traffic:
    """Bytes of one step on one of `ranks` GPUs.

    Embeddings are left out: a step reads a few rows of them.
    """
    reader = _Reader(weights, shape, workload, ranks)
    return Traffic(tuple(item for item in (*reader.verify(), *reader.draft()) if item.nbytes > 0))


class _Reader:
    """Adds up one step."""

    def __init__(self, weights: WeightTable, shape: Shape, workload: Workload, ranks: int) -> None:
        self._weights = weights
        self._shape = shape
        self._work = workload
        self._ranks = ranks

    def verify(self) -> Iterable[TrafficItem]:
        """The target's pass over all rows."""
        for group, label in _TRUNK_LABELS:
            yield TrafficItem(label, self._bytes(self._weights.select(ModelPart.TRUNK, group)))
        experts = self._weights.select(ModelPart.TRUNK, TensorGroup.ROUTED_EXPERT)
        yield TrafficItem("routed experts", self._bytes(experts) * self._share(self._work.rows))
        yield TrafficItem("output head", self._output_head())
        yield TrafficItem("keys and values", self._keys_and_values(self._shape.attention_layers))
        yield TrafficItem("recurrent state", self._state())

    def draft(self) -> Iterable[TrafficItem]:
        """One pass of the head over the window, then one row of each sequence for every further draft."""
        drafts = self._work.draft_tokens
        if not drafts or not self._shape.head_layers:
            return
        fixed = self._bytes(
            row
            for row in self._weights.select(ModelPart.MTP)
            if row.group not in (TensorGroup.ROUTED_EXPERT, TensorGroup.EMBEDDING)
        )
        experts = self._bytes(self._weights.select(ModelPart.MTP, TensorGroup.ROUTED_EXPERT))
        shares = self._share(self._work.rows) + (drafts - 1) * self._share(self._work.sequences)
        cache = drafts * self._keys_and_values(self._shape.head_layers)
        yield TrafficItem("draft: MTP head", drafts * fixed + cache, True)
        yield TrafficItem("draft: routed experts of the MTP head", experts * shares, True)
        yield TrafficItem("draft: output head", drafts * self._output_head() * self._drafted_rows(), True)

    def _bytes(self, rows: Iterable[WeightGroup]) -> float:
        heads = self._shape.key_value_heads
        return sum(row.per_rank(self._ranks, heads) for row in rows)

    def _share(self, rows: int) -> float:
        """The share of all routed experts that so many rows meet."""
        spec = self._shape.experts
        if spec is None:
            return 0.0
        return distinct_experts(spec.num_experts, spec.experts_per_token, rows) / spec.num_experts

    def _output_head(self) -> float:
        """The output head, or the embedding that stands for it."""
        own = self._weights.select(ModelPart.TRUNK, TensorGroup.LM_HEAD)
        return self._bytes(own or self._weights.select(ModelPart.TRUNK, TensorGroup.EMBEDDING))

    def _drafted_rows(self) -> float:
        rows = self._work.draft_rows
        return 1.0 if rows is None else min(1.0, rows / self._shape.vocabulary)

    def _keys_and_values(self, layers: int) -> float:
        each = key_value_bytes(self._shape, self._ranks, self._work.cache_bytes)
        return float(self._work.sequences * self._work.context * layers * each)

    def _state(self) -> float:
        """Read once and written once, as replay does; stacks that keep a state a row write more."""
        spec = self._shape.recurrent
        if spec is None:
            return 0.0
        one = spec.num_value_heads * spec.key_head_dim * spec.value_head_dim * STATE_BYTES / self._ranks
        return 2 * self._work.sequences * self._shape.recurrent_layers * one


_TRUNK_LABELS = (
    (TensorGroup.GATED_DELTA_NET, "Gated DeltaNet"),
    (TensorGroup.ATTENTION, "attention"),
    (TensorGroup.DENSE_MLP, "MLP"),
    (TensorGroup.SHARED_EXPERT, "shared experts"),
    (TensorGroup.ROUTER, "routers"),
    (TensorGroup.NORM, "norms"),
)
