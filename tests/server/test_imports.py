"""The process that speaks HTTP is small: no torch."""

from __future__ import annotations

import subprocess
import sys


def test_the_server_needs_no_torch() -> None:
    program = (
        "import sys, draftproof.server.app; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
