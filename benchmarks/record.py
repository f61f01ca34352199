"""A benchmark's result file: figures with their command, hardware, commit and raw samples."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

import draftproof

RESULTS = Path(__file__).parent / "results"


def write_record(name: str, figures: Mapping[str, object], samples: Mapping[str, object]) -> Path:
    """Write `results/<name>-<date>.json`."""
    now = datetime.now(UTC)
    record = {
        "command": " ".join(["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]]),
        "time": now.isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "hardware": {
            "processor": _processor(),
            "cores_usable": len(os.sched_getaffinity(0)),
            "load_average_at_end": os.getloadavg(),
        },
        "software": {
            "python": platform.python_version(),
            "draftproof": draftproof.__version__,
            **{package: version(package) for package in ("torch", "transformers")},
        },
        "figures": figures,
        "samples": samples,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{now:%Y-%m-%d-%H%M}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def ratio_interval(
    above: Sequence[float], below: Sequence[float], draws: int = 4000
) -> tuple[float, float, float]:
    """Geometric mean of paired ratios above/below, with a 95 % bootstrap interval over the pairs."""
    logs = np.log(np.asarray(above) / np.asarray(below))
    generator = np.random.default_rng(0)
    means = generator.choice(logs, (draws, len(logs))).mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
