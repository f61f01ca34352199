"""How a step's calls are carried out: one by one, or recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

WARM_UP_CALLS = 2
"""Calls before a recording: kernels are compiled and loaded, libraries make their workspaces."""


class Recorder(Protocol):
    """Makes a sequence of kernel calls callable again."""

    def record(self, calls: Callable[[], None]) -> Callable[[], None]:
        """What carries the calls out.

        Args:
            calls: enqueue kernels on the current stream and touch nothing else. They may be carried out
                while they are recorded, so whatever they move must be worthless at this time.
        """
        ...


class Eager:
    """Calls each time."""

    def record(self, calls: Callable[[], None]) -> Callable[[], None]:
        return calls


class CudaGraphs:
    """Records into CUDA graphs that share one memory pool: they never run at the same time.

    Attributes:
        recorded: graphs in the order of their recording, for whoever wants to look into one.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types here
        self.recorded: list[torch.cuda.CUDAGraph] = []

    def record(self, calls: Callable[[], None]) -> Callable[[], None]:
        # Everything that was enqueued so far may still be writing what the calls read.
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP_CALLS):
                calls()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            calls()
        self.recorded.append(graph)
        return graph.replay


def recorder_for(device: torch.device) -> Recorder:
    """Graphs where there are any."""
    return CudaGraphs() if device.type == "cuda" else Eager()
