"""What one sequence takes of a GPU's memory beside the weights: keys and values, and recurrent states."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.hardware.shape import Shape
from draftproof.hardware.state_layout import StateLayout

ACTIVATION_BYTES = 2
"""Of one element of the convolution state and of kept rows: BF16."""


@dataclass(frozen=True)
class SequenceCost:
    """Bytes on one rank.

    Attributes:
        key_value_per_token: of all attention layers, the head's included.
        state: of all copies of the recurrent and convolution state, and of kept rows.
        block_tokens: keys and values come in blocks of so many tokens.
    """

    key_value_per_token: int
    state: int
    block_tokens: int = 1

    def total(self, context: int) -> int:
        """Bytes of a sequence of so many tokens."""
        blocks = -(-context // self.block_tokens)
        return self.state + blocks * self.block_tokens * self.key_value_per_token


def sequence_cost(
    shape: Shape, layout: StateLayout, ranks: int, cache_bytes: int = 2, with_head: bool = True
) -> SequenceCost:
    """What a sequence takes on one of `ranks` GPUs.

    Args:
        shape: the model.
        layout: how the stack keeps the recurrent state.
        ranks: GPUs that a layer is split over.
        cache_bytes: of one element of keys and values: 2 (BF16) or 1 (FP8).
        with_head: the MTP head keeps keys and values too.
    """
    layers = shape.attention_layers + (shape.head_layers if with_head else 0)
    per_layer = key_value_bytes(shape, ranks, cache_bytes)
    return SequenceCost(
        key_value_per_token=layers * per_layer,
        state=shape.recurrent_layers * _layer_state(shape, layout, ranks, per_layer),
        block_tokens=layout.block_tokens or 1,
    )


def key_value_bytes(shape: Shape, ranks: int, cache_bytes: int) -> int:
    """Bytes of one token's keys and values of one layer on one rank; heads are repeated, never halved."""
    if shape.attention is None:
        return 0
    heads = -(-shape.attention.num_key_value_heads // ranks)
    return 2 * heads * shape.attention.head_dim * cache_bytes


def state_copy_bytes(shape: Shape, ranks: int, state_bytes: int, extra_columns: int = 0) -> int:
    """Bytes of one copy of the state of one layer on one rank: recurrent and convolution."""
    spec = shape.recurrent
    if spec is None:
        return 0
    recurrent = spec.num_value_heads * spec.key_head_dim * spec.value_head_dim * state_bytes
    convolution = spec.conv_dim * (spec.conv_kernel - 1 + extra_columns) * ACTIVATION_BYTES
    return -(-(recurrent + convolution) // ranks)


def _layer_state(shape: Shape, layout: StateLayout, ranks: int, key_value: int) -> int:
    """Bytes of all copies of one layer's state, and of the rows that are kept for replay."""
    spec = shape.recurrent
    if spec is None:
        return 0
    copy = state_copy_bytes(shape, ranks, layout.state_bytes, layout.extra_convolution_columns)
    padded = max(copy, (layout.block_tokens or 0) * key_value)
    # Of a row: the convolution's input, and decay and beta of every value head in float32.
    row = -(-(spec.conv_dim * ACTIVATION_BYTES + 2 * spec.num_value_heads * 4) // ranks)
    return layout.copies * padded + layout.kept_rows * row
