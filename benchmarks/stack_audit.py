"""Time of an audit of one stack: cold, and with kept answers.

    python -m benchmarks.stack_audit [--checkpoint CKPT] [--rounds N] [--stack sglang==0.5.23 ...]

Each round takes a fresh cache folder that holds the stacks' sources and nothing else, and runs the command
line three times, each in a process of its own: `verify CKPT` (links 1 and 2 alone), then with --stack, --gpu
and --tp twice: cold and warm. The share of links 3 to 5 is the difference to the first. Seconds are those of
the processor (user and system, of the whole process with its start and end), since wall time on a shared
machine says how busy it was; wall time is recorded beside it. Sources must have been fetched before. Python's
bytecode is written by a run before the rounds, as an installation has it.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.record import write_record
from draftproof.stacks.cache_folder import cache_folder

STACKS = ("sglang==0.5.23", "vllm==0.33.0")
DEPLOYMENT = ("--gpu", "rtx-pro-6000", "--tp", "8")


@dataclass(frozen=True)
class Sample:
    """One run: processor and wall seconds, and its exit code."""

    stack: str
    run: str
    processor: float
    wall: float
    exit_code: int


def timed(stack: str, run: str, words: tuple[str, ...], environment: dict[str, str]) -> Sample:
    """One command line in a process of its own."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "draftproof.cli.main", "verify", *words, "--json"],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    wall, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Sample(stack, run, round(processor, 3), round(wall, 3), done.returncode)


def measure(checkpoint: str, stack: str, sources: Path, bytecode: str) -> list[Sample]:
    """Links 1 and 2 alone, then the chain cold and warm, in a fresh cache folder."""
    with tempfile.TemporaryDirectory(prefix="stack-audit-") as folder:
        shutil.copytree(sources, Path(folder) / "stacks", symlinks=True)
        environment = {
            **os.environ,
            "DRAFTPROOF_CACHE": folder,
            "PYTHONPYCACHEPREFIX": bytecode,
            "PYTHONDONTWRITEBYTECODE": "",
        }
        chain = (checkpoint, "--stack", stack, *DEPLOYMENT)
        runs = {"checkpoint": (checkpoint,), "cold": chain, "warm": chain}
        return [timed(stack, name, words, environment) for name, words in runs.items()]


def least(samples: list[Sample], stack: str, run: str) -> float:
    """The smallest processor time: other processes can only add to it."""
    return min(sample.processor for sample in samples if (sample.stack, sample.run) == (stack, run))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", default="tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stack", action="append", help="may be given several times")
    parser.add_argument("--name", default="stack-audit", help="of the result file")
    options = parser.parse_args()
    stacks = options.stack or STACKS
    sources = cache_folder(os.environ) / "stacks"
    with tempfile.TemporaryDirectory(prefix="stack-audit-bytecode-") as bytecode:
        for stack in stacks:
            measure("tiny", stack, sources, bytecode)
        samples = [
            sample
            for _ in range(options.rounds)
            for stack in stacks
            for sample in measure(options.checkpoint, stack, sources, bytecode)
        ]
    figures = {}
    for stack in stacks:
        alone = least(samples, stack, "checkpoint")
        figures[stack] = {"links_1_2_s": alone} | {
            f"{run}_{share}": round(least(samples, stack, run) - taken, 3)
            for run in ("cold", "warm")
            for share, taken in (("total_s", 0.0), ("links_3_5_s", alone))
        }
    path = write_record(options.name, figures, {"runs": [asdict(sample) for sample in samples]})
    sys.stdout.write(f"{figures}\n{path}\n")


if __name__ == "__main__":
    main()
