"""Where a step's time goes: every kernel by name, and the sum of their times beside the step.

Kernels that are launched with overlap begin while their predecessor still runs, and wait for it. A kernel's
own time is therefore counted from the end of everything that ended before it did: these times add up to the
time in which the GPU was at work, and what a kernel spent waiting is not counted twice.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from draftproof.bench.place import Place

PROFILED_STEPS = 8


class Launch(NamedTuple):
    """One kernel as the profiler saw it; microseconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class KernelRow:
    """One kernel.

    Attributes:
        name: as compiled.
        launches: per step.
        microseconds: own time of all its launches of a step.
        resident_microseconds: from start to end, waiting for predecessors included.
    """

    name: str
    launches: float
    microseconds: float
    resident_microseconds: float


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
        """Sum of own times; the rest of the step is gaps in which no kernel ran."""
        return sum(row.microseconds for row in self.rows)

    @property
    def launches(self) -> float:
        """Kernels of a step."""
        return sum(row.launches for row in self.rows)


def kernel_table(
    place: Place,
    step: Callable[[], None],
    subjects: Mapping[str, Sequence[str]],
    steps: int = PROFILED_STEPS,
) -> KernelTable:
    """Profile steps.

    Args:
        place: the device.
        step: launches one step on the current stream.
        subjects: what a kernel worked on, launch by launch of one step, by its name.
        steps: how many to average over.
    """
    place.synchronize()
    with warnings.catch_warnings():
        # The profiler announces that it keeps one cycle of events; there is only one.
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
            for _ in range(steps):
                step()
            place.synchronize()
        events = profiler.events() or ()
    launches = [
        Launch(event.name, event.time_range.start, event.time_range.end)
        for event in events
        if event.device_type == DeviceType.CUDA and not _is_annotation(event.name)
    ]
    return tabulate(with_subjects(launches, subjects, steps), steps)


def with_subjects(
    launches: Iterable[Launch], subjects: Mapping[str, Sequence[str]], steps: int
) -> Iterator[Launch]:
    """The launches in order, each named with what it worked on where the numbers of launches agree."""
    ordered = sorted(launches, key=lambda launch: launch.end)
    counts = Counter(launch.name for launch in ordered)
    seen: Counter[str] = Counter()
    for launch in ordered:
        known = subjects.get(launch.name, ())
        if known and counts[launch.name] == len(known) * steps:
            subject = known[seen[launch.name] % len(known)]
            seen[launch.name] += 1
            yield launch._replace(name=f"{launch.name}: {subject}")
        else:
            yield launch


def tabulate(launches: Iterable[Launch], steps: int) -> KernelTable:
    """The table of launches of one stream.

    Args:
        launches: in any order.
        steps: how many steps they make up.
    """
    ordered = sorted(launches, key=lambda launch: launch.end)
    if not ordered:
        return KernelTable((), 0.0)
    counts: dict[str, int] = {}
    own: dict[str, float] = {}
    resident: dict[str, float] = {}
    before = min(launch.start for launch in ordered)
    first, last = before, ordered[-1].end
    for launch in ordered:
        counts[launch.name] = counts.get(launch.name, 0) + 1
        own[launch.name] = own.get(launch.name, 0.0) + launch.end - max(launch.start, before)
        resident[launch.name] = resident.get(launch.name, 0.0) + launch.end - launch.start
        before = launch.end
    rows = [
        KernelRow(name, count / steps, own[name] / steps, resident[name] / steps)
        for name, count in counts.items()
    ]
    rows.sort(key=lambda row: -row.microseconds)
    return KernelTable(tuple(rows), (last - first) / steps)


def _is_annotation(name: str) -> bool:
    return name.startswith(("ProfilerStep", "## "))
