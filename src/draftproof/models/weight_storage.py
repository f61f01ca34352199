"""How weights are kept in memory, as a choice. Needs no torch."""

from __future__ import annotations

from enum import Enum


class WeightStorage(Enum):
    """How quantised weights are kept after loading."""

    DENSE = "dense"
    """As real numbers: fast on a CPU."""
    PACKED = "packed"
    """As stored: a quarter of the memory, unpacked at every use."""
