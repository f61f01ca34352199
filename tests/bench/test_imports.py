"""A GPU machine imports bench and engine without the command line's packages; nobody needs those of a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

ABSENT = ("typer", "rich", "pydantic", "fastapi", "triton", "cuda", "transformers")

PROGRAM = """
import sys
absent = set({absent!r})
class Absent:
    def find_spec(self, name, path=None, target=None):
        # torch asks for triton by itself, and does without.
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
import {module}
"""


@pytest.mark.parametrize("module", ["draftproof.bench.__main__", "draftproof.engine.build"])
def test_it_needs_no_package_of_the_command_line_or_of_a_gpu(module: str) -> None:
    program = PROGRAM.format(absent=ABSENT, module=module)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr
