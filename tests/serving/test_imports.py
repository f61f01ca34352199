"""The process that speaks HTTP never loads torch: it starts at once, and stays small beside the engine."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "draftproof.serving.process_client",
        "draftproof.serving.process_main",
        "draftproof.serving.checkpoint_factory",
        "draftproof.server.app",
        "draftproof.server.run",
        "draftproof.cli.native_server",
    ],
)
def test_no_torch(module: str) -> None:
    program = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_help_of_serve_needs_no_web_framework() -> None:
    program = (
        "import sys, draftproof.cli.serve; sys.exit(bool({'torch', 'fastapi', 'uvicorn'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
