"""What a benchmark found."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.bench.figures import CellFigures
from draftproof.bench.kernel_table import KernelTable
from draftproof.bench.microbench import MicroFigure
from draftproof.bench.request import BenchRequest
from draftproof.hardware.memory_plan import MemoryPlan
from draftproof.kernels.select import SelectionReport


@dataclass(frozen=True)
class BenchResult:
    """One run, as far as it has come: the last three are there when they were asked for and are done.

    Attributes:
        request: what was asked for.
        layout_title: how weights were stored, in words.
        layers: of the trunk that was timed.
        bandwidth: bytes per second that this GPU reads, measured in this run.
        load_seconds: of making and packing the weights.
        plan: of the memory.
        peak_bytes: of the memory, as torch counted it.
        selection: of the kernels.
        cells: figures, in the order of the request.
        layer_microseconds: time of one layer in plain decoding, of a slice of a model; None for a whole one.
        kernel_tables: by title of the cell.
        microbenchmarks: of all rows that were asked for.
    """

    request: BenchRequest
    layout_title: str
    layers: int
    bandwidth: float
    load_seconds: float
    plan: MemoryPlan
    peak_bytes: int
    selection: SelectionReport
    cells: tuple[CellFigures, ...]
    layer_microseconds: float | None = None
    kernel_tables: tuple[tuple[str, KernelTable], ...] = ()
    microbenchmarks: tuple[MicroFigure, ...] = ()
