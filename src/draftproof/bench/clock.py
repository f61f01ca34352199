"""Time on the device, between two events of the current stream."""

from __future__ import annotations

from typing import Protocol

import torch


class Clock(Protocol):
    """Runs from when it was made."""

    def stop(self) -> None:
        """What is enqueued from now on does not count."""
        ...

    def seconds(self) -> float:
        """Between start and stop."""
        ...


class DeviceClock:
    """Starts when it is made; `stop` enqueues the end, `seconds` waits for it."""

    def __init__(self) -> None:
        self._begin = _event()
        self._end = _event()
        self._begin.record()

    def stop(self) -> None:
        """What is enqueued from now on does not count."""
        self._end.record()

    def seconds(self) -> float:
        """Between start and stop."""
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) / 1000


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch has no types for it
