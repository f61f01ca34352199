"""What becomes of a product before it is stored."""

from __future__ import annotations

from enum import Enum


class Epilogue(Enum):
    """Done in float32, before the residual is added and the result is rounded."""

    NONE = "none"
    SILU_PAIRS = "silu-pairs"
    """silu(gate) * up of a paired matrix: half as many outputs as rows."""
