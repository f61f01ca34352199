"""What decides in integers needs no torch."""

from __future__ import annotations

import subprocess
import sys


def test_no_torch() -> None:
    program = (
        "import sys; import draftproof.runtime.scheduler, draftproof.engine.counters; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
