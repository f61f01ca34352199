"""A benchmark's result file: figures with their command, hardware, commit and raw samples."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

import draftproof

RESULTS = Path(__file__).parent / "results"


def make_record(figures: Mapping[str, object], samples: Mapping[str, object]) -> dict[str, object]:
    """The record of a run that ends now."""
    return {
        "command": " ".join(["python", "-m", _module(), *sys.argv[1:]]),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **_sources(),
        "hardware": {
            "processor": _processor(),
            "cores_usable": len(os.sched_getaffinity(0)),
            "load_average_at_end": os.getloadavg(),
            "gpus": _gpus(),
        },
        "software": {
            "python": platform.python_version(),
            "draftproof": draftproof.__version__,
            **{package: version(package) for package in ("torch", "transformers")},
        },
        "figures": figures,
        "samples": samples,
    }


def write_record(name: str, figures: Mapping[str, object], samples: Mapping[str, object]) -> Path:
    """Write `results/<name>-<date>.json`."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{datetime.now(UTC):%Y-%m-%d-%H%M}.json"
    path.write_text(json.dumps(make_record(figures, samples), indent=1) + "\n")
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


def _module() -> str:
    """The benchmark that runs, as `python -m` is given it."""
    started = Path(sys.argv[0]).resolve()
    folder = Path(__file__).parent
    inside = started.relative_to(folder) if started.is_relative_to(folder) else Path(started.name)
    return ".".join(("benchmarks", *inside.with_suffix("").parts))


def _sources() -> dict[str, object]:
    """The commit, as the environment names it where the sources are a copy and not a checkout."""
    named = os.environ.get("DRAFTPROOF_COMMIT")
    if named:
        return {"commit": named}
    changed = bool(_git("status", "--porcelain", "--untracked-files=no"))
    return {"commit": _git("rev-parse", "HEAD"), "uncommitted_changes": changed}


def _gpus() -> list[str]:
    """Names of the GPUs that torch sees, where a benchmark uses torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _git(*arguments: str) -> str:
    if shutil.which("git") is None:
        return ""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
