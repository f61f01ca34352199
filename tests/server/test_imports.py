"""The process that speaks HTTP is small: no torch."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import draftproof.server.app, draftproof.server.observability, draftproof.serving.process_client
print(sorted({"torch", "transformers"} & set(sys.modules)))
"""


def test_the_server_needs_no_torch() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
