"""How much memory this machine lets a process have."""

from __future__ import annotations

import os
from pathlib import Path

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Of the container that the process runs in, in bytes; the word "max" when it has none."""


def host_memory_bytes(limit_file: Path = CONTAINER_LIMIT) -> int:
    """Bytes of the machine, or of the container when that is given fewer.

    Args:
        limit_file: says what the container is given; need not be there.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = limit_file.read_text(encoding="ascii").strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdecimal() else physical
