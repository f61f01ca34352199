"""The device that is measured: everything that a benchmark asks it for beside running kernels."""

from __future__ import annotations

from typing import Protocol

import torch

from draftproof.bench.bandwidth import measured_read_bandwidth
from draftproof.bench.clock import Clock, DeviceClock
from draftproof.errors import EnvironmentProblem


class Place(Protocol):
    """A device."""

    device: torch.device

    @property
    def name(self) -> str:
        """As its maker calls it."""
        ...

    def free_bytes(self) -> int:
        """Memory that nobody uses."""
        ...

    def used_bytes(self) -> int:
        """Memory that tensors take now."""
        ...

    def peak_bytes(self) -> int:
        """Most memory that tensors took."""
        ...

    def read_bandwidth(self) -> float:
        """Bytes per second of reading, measured."""
        ...

    def synchronize(self) -> None:
        """Wait for everything that was enqueued."""
        ...

    def clock(self) -> Clock:
        """A clock that runs from now on."""
        ...


class Gpu:
    """The current CUDA device.

    Args:
        bandwidth: bytes per second of reading, where it was measured before; a process that has filled and
            freed its memory measures less.

    Raises:
        EnvironmentProblem: there is none.
    """

    def __init__(self, bandwidth: float | None = None) -> None:
        self._bandwidth = bandwidth
        if not torch.cuda.is_available():
            raise EnvironmentProblem(
                "no CUDA device that torch can use",
                "Real shapes are timed on a GPU; see `draftproof doctor`.",
            )
        self.device = torch.device("cuda", torch.cuda.current_device())
        torch.cuda.reset_peak_memory_stats(self.device)

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.device)

    def free_bytes(self) -> int:
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self.device)[0])

    def used_bytes(self) -> int:
        return torch.cuda.memory_allocated(self.device)

    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated(self.device)

    def read_bandwidth(self) -> float:
        return self._bandwidth or measured_read_bandwidth(self.device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def clock(self) -> Clock:
        return DeviceClock()
