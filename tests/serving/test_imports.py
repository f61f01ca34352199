"""The process that speaks HTTP never loads torch: it starts at once, and stays small beside the engine."""

import subprocess
import sys

SERVER = "draftproof.cli.native_server, draftproof.serving.process_main"
"""All of the first process, and what it shares with the second."""


def imported(modules: str, unwanted: str) -> int:
    program = f"import sys, {modules}; sys.exit(bool({{*{unwanted.split()}}} & {{*sys.modules}}))"
    return subprocess.run([sys.executable, "-c", program], check=False).returncode


def test_no_torch() -> None:
    assert imported(SERVER, "torch") == 0


def test_help_of_serve_needs_no_web_framework_either() -> None:
    assert imported("draftproof.cli.serve", "torch fastapi uvicorn") == 0
