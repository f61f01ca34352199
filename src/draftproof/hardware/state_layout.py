"""How a serving stack keeps the recurrent state of one sequence, as numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StateLayout:
    """Copies of the state of one sequence. A copy is the recurrent and the convolution state of all layers.

    Attributes:
        committed_copies: full states per sequence outside a verify pass (slots, radix or prefix copies).
        draft_copies: further full states per sequence that speculation with K drafts keeps.
        state_bytes: bytes of one element of the recurrent state: 4 (float32) or 2 (bfloat16).
        block_tokens: tokens of a KV block where the stack pads blocks of state and KV to one size; None
            otherwise. A copy of one layer's state then takes at least such a block.
        extra_convolution_columns: columns of the convolution state beyond kernel - 1, in every copy (vLLM
            keeps K more).
        kept_rows: rows of a window whose inputs are kept instead of states (replay: K + 1).
    """

    committed_copies: int
    draft_copies: int
    state_bytes: int
    block_tokens: int | None = None
    extra_convolution_columns: int = 0
    kept_rows: int = 0

    @property
    def copies(self) -> int:
        """Full states per sequence."""
        return self.committed_copies + self.draft_copies
