"""From samples to figures: medians, accept lengths, and the share of what bytes alone allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from draftproof.bench.stepping import StepSample
from draftproof.hardware.roofline import Model
from draftproof.hardware.traffic import Workload, step_traffic

_PER_MILLE = 1e3


@dataclass(frozen=True)
class Cell:
    """One measurement: so many sequences with so many drafts.

    Attributes:
        batch: sequences at once.
        draft_tokens: K.
        simulated: accept length that was simulated; None when it is the weights' own.
    """

    batch: int
    draft_tokens: int
    simulated: float | None

    @property
    def title(self) -> str:
        """As it stands in every line; simulated acceptance is never left unsaid."""
        drafts = f"NEXTN K={self.draft_tokens}" if self.draft_tokens else "plain"
        note = "" if self.simulated is None else f", SIMULATED accept length {self.simulated:.2f}"
        return f"batch {self.batch}, {drafts}{note}"


@dataclass(frozen=True)
class CellFigures:
    """What a cell came to.

    Attributes:
        cell: which.
        tokens_per_second: of all sequences, median of the samples, host clock.
        step_milliseconds: median, host clock.
        device_milliseconds: median, device clock.
        accept_length: tokens per verify pass as counted.
        step_bytes: what a step must move.
        ideal: tokens per second if bytes alone took time.
        samples: the raw ones.
    """

    cell: Cell
    tokens_per_second: float
    step_milliseconds: float
    device_milliseconds: float
    accept_length: float
    step_bytes: float
    ideal: float
    samples: tuple[StepSample, ...]

    @property
    def roofline_share(self) -> float:
        """Of the ideal, 0 to 1."""
        return self.tokens_per_second / self.ideal

    @property
    def line(self) -> str:
        """For people."""
        each = "" if self.cell.batch == 1 else f" ({self.tokens_per_second / self.cell.batch:.1f} each)"
        return (
            f"{self.cell.title}: {self.tokens_per_second:.1f} tok/s{each}, "
            f"step {self.step_milliseconds:.3f} ms (device {self.device_milliseconds:.3f}), "
            f"accept length {self.accept_length:.3f}, "
            f"{self.roofline_share:.1%} of the roofline's {self.ideal:.0f}"
        )


def cell_figures(
    cell: Cell, samples: Sequence[StepSample], sizes: Model, workload: Workload, bandwidth: float
) -> CellFigures:
    """Figures of one cell.

    Args:
        cell: which.
        samples: at least one.
        sizes: weights and shape.
        workload: what a step of it reads.
        bandwidth: bytes per second, measured on the same GPU.
    """
    nbytes = step_traffic(sizes.weights, sizes.shape, workload).total
    accept_length = sum(each.tokens for each in samples) / sum(each.passes for each in samples)
    return CellFigures(
        cell=cell,
        tokens_per_second=median(each.tokens_per_second for each in samples),
        step_milliseconds=median(each.seconds / each.steps for each in samples) * _PER_MILLE,
        device_milliseconds=median(each.device_seconds / each.steps for each in samples) * _PER_MILLE,
        accept_length=accept_length,
        step_bytes=nbytes,
        ideal=accept_length * cell.batch * bandwidth / nbytes,
        samples=tuple(samples),
    )
