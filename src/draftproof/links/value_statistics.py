"""What a run of numbers looks like: the few figures from which faults are told."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from draftproof.links.element_values import Values


@dataclass(frozen=True)
class ValueStatistics:
    """Figures of the values that were read.

    Attributes:
        count: how many.
        zeros: how many are 0.
        negative: how many are below 0.
        not_finite: how many are NaN or infinite; the figures below leave them out.
        minimum: smallest value; +inf without finite values.
        maximum: largest value; -inf without finite values.
        total: sum of the values.
        squares: sum of their squares.
    """

    count: int
    zeros: int
    negative: int
    not_finite: int
    minimum: float
    maximum: float
    total: float
    squares: float

    @property
    def all_zero(self) -> bool:
        """Every value is 0."""
        return self.count > 0 and self.zeros == self.count

    @property
    def constant(self) -> bool:
        """All values are the same number, and there is more than one."""
        return self.count > 1 and self.not_finite == 0 and self.minimum == self.maximum

    @property
    def mean(self) -> float:
        """Mean of the finite values; NaN without any."""
        finite = self.count - self.not_finite
        return self.total / finite if finite else math.nan

    @property
    def rms(self) -> float:
        """Root mean square of the finite values; NaN without any."""
        finite = self.count - self.not_finite
        return math.sqrt(self.squares / finite) if finite else math.nan


NOTHING_READ = ValueStatistics(0, 0, 0, 0, math.inf, -math.inf, 0.0, 0.0)


def measure(values: Values) -> ValueStatistics:
    """Statistics of float32 values of any shape."""
    if values.size == 0:
        return NOTHING_READ
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float(np.dot(flat, flat))
    count = flat.size
    if not math.isfinite(squares):
        # A NaN, an infinity, or a square beyond float32: sort them out the slow way.
        flat = flat[np.isfinite(flat)].astype(np.float64)
        squares = float(np.dot(flat, flat))
    if flat.size == 0:
        return ValueStatistics(count, 0, 0, count, math.inf, -math.inf, 0.0, 0.0)
    return ValueStatistics(
        count=count,
        zeros=int(flat.size - np.count_nonzero(flat)),
        negative=int(np.count_nonzero(flat < 0)),
        not_finite=int(count - flat.size),
        minimum=float(flat.min()),
        maximum=float(flat.max()),
        total=float(flat.sum(dtype=np.float64)),
        squares=squares,
    )


def merge(parts: Iterable[ValueStatistics]) -> ValueStatistics:
    """Statistics of all parts together."""
    together = NOTHING_READ
    for part in parts:
        together = ValueStatistics(
            count=together.count + part.count,
            zeros=together.zeros + part.zeros,
            negative=together.negative + part.negative,
            not_finite=together.not_finite + part.not_finite,
            minimum=min(together.minimum, part.minimum),
            maximum=max(together.maximum, part.maximum),
            total=together.total + part.total,
            squares=together.squares + part.squares,
        )
    return together
