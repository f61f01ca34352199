"""Where a step's time goes: every kernel by name, its time and number, and their sum beside the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from draftproof.bench.place import Place

PROFILED_STEPS = 8


@dataclass(frozen=True)
class KernelRow:
    """One kernel.

    Attributes:
        name: as compiled.
        launches: per step.
        microseconds: of all its launches of a step.
    """

    name: str
    launches: float
    microseconds: float


@dataclass(frozen=True)
class KernelTable:
    """One step.

    Attributes:
        rows: the longest first.
        step_microseconds: time of a step while it was profiled, by the device's clock.
    """

    rows: tuple[KernelRow, ...]
    step_microseconds: float

    @property
    def kernel_microseconds(self) -> float:
        """Sum over all kernels; more than the step where they overlap."""
        return sum(row.microseconds for row in self.rows)

    @property
    def launches(self) -> float:
        """Kernels of a step."""
        return sum(row.launches for row in self.rows)


def kernel_table(place: Place, step: Callable[[], None], steps: int = PROFILED_STEPS) -> KernelTable:
    """Profile steps.

    Args:
        place: the device.
        step: launches one step on the current stream.
        steps: how many to average over.
    """
    place.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            step()
        place.synchronize()
    sums: dict[str, tuple[int, float]] = {}
    first, last = float("inf"), 0.0
    for event in profiler.events() or ():
        if event.device_type != DeviceType.CUDA or _is_annotation(event.name):
            continue
        count, time = sums.get(event.name, (0, 0.0))
        duration = event.time_range.elapsed_us()
        sums[event.name] = count + 1, time + duration
        first, last = min(first, event.time_range.start), max(last, event.time_range.end)
    rows = [KernelRow(name, count / steps, time / steps) for name, (count, time) in sums.items()]
    rows.sort(key=lambda row: -row.microseconds)
    return KernelTable(tuple(rows), (last - first) / steps if rows else 0.0)


def _is_annotation(name: str) -> bool:
    return name.startswith(("ProfilerStep", "## "))
