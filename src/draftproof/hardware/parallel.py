"""What tensor parallelism must divide: heads, state, matrices in the blocks that they are stored in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from draftproof.architecture.tensor_plan import ModelPart, TensorGroup
from draftproof.checkpoint.precision import MXFP4_GROUP, NVFP4_GROUP, Precision
from draftproof.hardware.shape import Shape
from draftproof.hardware.weights import WeightTable

FP8_BLOCK = 128
VOCABULARY_PADDING = 64
"""Stacks pad the vocabulary to a multiple of this before they split it."""
PACKED_GROUP = 128
"""Usual group size of packed 4-bit integers."""
CANDIDATES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 32)
_BLOCKS = {
    Precision.FP8_BLOCK: FP8_BLOCK,
    Precision.NVFP4_MODELOPT: NVFP4_GROUP,
    Precision.NVFP4_COMPRESSED: NVFP4_GROUP,
    Precision.MXFP4: MXFP4_GROUP,
    Precision.INT4_PACKED: PACKED_GROUP,
    Precision.GPTQ: PACKED_GROUP,
    Precision.AWQ: PACKED_GROUP,
}
"""Elements along a split dimension that share a scale; a shard must hold whole ones."""


@dataclass(frozen=True)
class Division:
    """One thing that a number of ranks must divide.

    Attributes:
        check: stable name: "attention-heads-divide".
        claim: a sentence that can be false.
        expected: what is seen when it holds.
        observed: what is seen.
        holds: whether it does.
        field: the config field that decides, below the text section.
    """

    check: str
    claim: str
    expected: str
    observed: str
    holds: bool
    field: str


def divisions(shape: Shape, weights: WeightTable, ranks: int) -> tuple[Division, ...]:
    """Everything that must divide over so many ranks, the target's and the head's alike."""
    return (
        *_attention(shape, ranks),
        *_recurrent(shape, ranks),
        *_intermediate(shape, weights, ranks),
        _vocabulary(shape, ranks),
    )


def possible_ranks(shape: Shape, weights: WeightTable) -> tuple[int, ...]:
    """The numbers of ranks up to 32 with which everything divides."""
    return tuple(
        ranks for ranks in CANDIDATES if all(each.holds for each in divisions(shape, weights, ranks))
    )


def _attention(shape: Shape, ranks: int) -> Iterator[Division]:
    if shape.attention is None:
        return
    heads, groups = shape.attention.num_heads, shape.attention.num_key_value_heads
    yield _heads("attention-heads-divide", "attention heads", heads, ranks, "num_attention_heads")
    repeated = groups < ranks
    holds = ranks % groups == 0 if repeated else groups % ranks == 0
    observed = _quotient(groups, ranks)
    if repeated and holds:
        observed = f"{groups} heads, each repeated on {ranks // groups} ranks"
    yield Division(
        "key-value-heads-divide",
        f"The {groups} key/value heads divide over {ranks} ranks, or repeat evenly.",
        f"{groups} a multiple of {ranks}, or {ranks} a multiple of {groups}",
        observed,
        holds,
        "num_key_value_heads",
    )


def _recurrent(shape: Shape, ranks: int) -> Iterator[Division]:
    if shape.recurrent is None:
        return
    keys, values = shape.recurrent.num_key_heads, shape.recurrent.num_value_heads
    yield _heads(
        "recurrent-key-heads-divide", "Gated DeltaNet key heads", keys, ranks, "linear_num_key_heads"
    )
    yield _heads(
        "recurrent-value-heads-divide", "Gated DeltaNet value heads", values, ranks, "linear_num_value_heads"
    )


def _heads(check: str, noun: str, count: int, ranks: int, field: str) -> Division:
    return Division(
        check,
        f"The {count} {noun} divide over {ranks} ranks.",
        f"{count} a multiple of {ranks}",
        _quotient(count, ranks),
        count % ranks == 0,
        field,
    )


def _intermediate(shape: Shape, weights: WeightTable, ranks: int) -> Iterator[Division]:
    """Intermediate sizes: a shard must hold whole blocks of the precision that it is stored in."""
    moe = shape.experts
    sizes = [
        (TensorGroup.ROUTED_EXPERT, moe.intermediate_size if moe else 0, "moe_intermediate_size"),
        (
            TensorGroup.SHARED_EXPERT,
            moe.shared_intermediate_size if moe else 0,
            "shared_expert_intermediate_size",
        ),
        (TensorGroup.DENSE_MLP, shape.dense_size, "intermediate_size"),
    ]
    for group, size, field in sizes:
        for part in (ModelPart.TRUNK, ModelPart.MTP):
            precisions = weights.precisions(part, group) if size else ()
            if precisions:
                yield _size(group, part, size, precisions, ranks, field)


def _size(
    group: TensorGroup, part: ModelPart, size: int, precisions: Sequence[Precision], ranks: int, field: str
) -> Division:
    """One group of one part; of several precisions the one with the largest blocks decides."""
    precision = max(precisions, key=lambda each: _BLOCKS.get(each, 1))
    block = _BLOCKS.get(precision, 1)
    owner, prefix = ("head", "head-") if part is ModelPart.MTP else ("target", "")
    holds = size % ranks == 0 and size // ranks % block == 0
    unit = f" in whole blocks of {block} ({precision.value})" if block > 1 else ""
    observed = _quotient(size, ranks)
    if size % ranks == 0 and block > 1:
        observed += f", {size / ranks / block:g} blocks of {block}"
    return Division(
        f"{prefix}{group.value.replace(' ', '-').lower()}-divide",
        f"The {owner}'s {group.value}, {size:,} wide, divide over {ranks} ranks{unit}.",
        f"{size:,} / {ranks} a multiple of {block}" if block > 1 else f"{size:,} a multiple of {ranks}",
        observed,
        holds,
        field,
    )


def _vocabulary(shape: Shape, ranks: int) -> Division:
    padded = -(-shape.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING
    note = (
        f"{shape.vocabulary:,}"
        if padded == shape.vocabulary
        else f"{shape.vocabulary:,}, padded to {padded:,}"
    )
    return Division(
        "vocabulary-divides",
        f"The vocabulary, padded to a multiple of {VOCABULARY_PADDING}, divides over {ranks} ranks.",
        f"{padded:,} a multiple of {ranks}",
        f"{note}: {_quotient(padded, ranks)}",
        padded % ranks == 0,
        "vocab_size",
    )


def _quotient(count: int, ranks: int) -> str:
    each, rest = divmod(count, ranks)
    return f"{each:,} on each rank" if not rest else f"{count:,} / {ranks} = {count / ranks:.2f}"
