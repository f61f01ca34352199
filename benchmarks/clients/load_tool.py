"""What the scripts around load tools share: their options, and which version of the tool ran."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path


def version_of(program: str) -> str:
    """What the program says of itself."""
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def tool_options(description: str | None, program: str) -> argparse.ArgumentParser:
    """Options of a script around `program`; a script adds its own."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", default=program)
    parser.add_argument("--checkpoint", default="tiny")
    parser.add_argument("--tokenizer", required=True, help="the checkpoint's folder")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=96)
    parser.add_argument("--output", type=int, default=48)
    log = Path(tempfile.gettempdir()) / f"draftproof-{program}.log"
    parser.add_argument("--log", type=Path, default=log)
    return parser
