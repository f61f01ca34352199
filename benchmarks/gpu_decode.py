"""The GPU figures of the README, case by case, each in a process of its own.

    python -m benchmarks.gpu_decode [--cases NAME,NAME] [--output FOLDER] [--timeout SECONDS]

Writes one result file of `draftproof bench` a case, `gpu-NAME.json`; `benchmarks.gpu_table` makes tables of
them. Acceptance is simulated (3.0 tokens a pass at K = 3) and named so in every line: the weights were never
trained.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.record import RESULTS

SIMULATED = ("--simulate-accept-length", "3.0", "--draft-vocabulary", "32768")
ONE = ("--batch", "1", "--draft-tokens", "0,1,2,3", *SIMULATED, "--kernels", "--microbenchmarks")
BATCHES = ("--batch", "1,4,16,64", "--draft-tokens", "0,1,2,3", *SIMULATED, "--steps", "32")
CASES = {
    "35b-nvfp4": ("qwen3.5-35b-a3b", "nvfp4", ONE),
    "35b-nvfp4-3.6": ("qwen3.5-35b-a3b", "nvfp4-3.6", ONE),
    "35b-fp8": ("qwen3.5-35b-a3b", "fp8", ONE),
    "35b-bf16": ("qwen3.5-35b-a3b", "bf16", ONE),
    "122b-nvfp4": ("qwen3.5-122b-a10b", "nvfp4", ONE),
    "27b-nvfp4-3.6": ("qwen3.5-27b", "nvfp4-3.6", ONE),
    "27b-bf16": ("qwen3.5-27b", "bf16", ONE),
    "397b-nvfp4-slice": ("qwen3.5-397b-a17b", "nvfp4", (*ONE, "--layers", "fit")),
    "35b-nvfp4-routed-batches": ("qwen3.5-35b-a3b", "nvfp4-routed", BATCHES),
    "35b-nvfp4-batches": ("qwen3.5-35b-a3b", "nvfp4", BATCHES),
    "35b-bf16-batches": ("qwen3.5-35b-a3b", "bf16", BATCHES),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds of one case")
    options = parser.parse_args()
    for name in options.cases.split(","):
        shape, precision, arguments = CASES[name]
        path = options.output / f"gpu-{name}.json"
        command = [sys.executable, "-m", "draftproof.bench", "--shape", shape, "--precision", precision]
        print(f"== {name}", flush=True)
        try:
            subprocess.run(
                [*command, *arguments, "--output-json", str(path)], timeout=options.timeout, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"{name}: not done in {options.timeout:g} s", flush=True)


if __name__ == "__main__":
    main()
