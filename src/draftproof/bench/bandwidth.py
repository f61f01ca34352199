"""How fast this GPU reads its memory, measured now: what shares of the roofline are counted by."""

from __future__ import annotations

import torch

from draftproof.bench.clock import DeviceClock

READ_BYTES = 4 << 30
REPEATS = 10


def measured_read_bandwidth(device: torch.device) -> float:
    """Bytes per second of summing a buffer far larger than the caches: the best of several sums."""
    free, _ = torch.cuda.mem_get_info(device)
    size = min(READ_BYTES, free // 2)
    buffer = torch.zeros(size // 8, dtype=torch.int64, device=device)
    buffer.sum()
    best = float("inf")
    for _ in range(REPEATS):
        clock = DeviceClock()
        buffer.sum()
        clock.stop()
        best = min(best, clock.seconds())
    return buffer.numel() * 8 / best
