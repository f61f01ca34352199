"""The result file: figures with their command, hardware, software, commit and raw samples."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import torch

import draftproof
from draftproof.bench.result import BenchResult
from draftproof.errors import UsageError
from draftproof.hardware.probe import probe_gpus

SCHEMA_VERSION = "1.0"
PACKAGES = ("torch", "triton", "transformers", "cuda-bindings", "fla-core")
COMMIT_VARIABLE = "DRAFTPROOF_COMMIT"
"""Names the commit where the sources are no checkout."""


def result_json(result: BenchResult, command: str) -> Mapping[str, Any]:
    """Everything of a result, ready for `json.dumps`."""
    fields = asdict(result.request).items()
    request = {key: str(value) if isinstance(value, Path) else value for key, value in fields}
    request["backends"] = {op: backend.value for op, backend in result.request.backends}
    return {
        "kind": "bench",
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "hardware": _hardware(),
        "software": _software(),
        "request": request,
        "acceptance": "simulated" if request["accept_length"] is not None else "as the weights give it",
        "layout": result.layout_title,
        "layers": result.layers,
        "read_bandwidth": result.bandwidth,
        "load_seconds": result.load_seconds,
        "memory": {
            "planned_bytes": {item.purpose: item.nbytes for item in result.plan.items},
            "peak_bytes": result.peak_bytes,
        },
        "kernels": {
            "place": result.selection.place,
            "table": result.selection.table,
            "rules": {op: [_rule(rule) for rule in rules] for op, rules in result.selection.rules.items()},
            "demotions": [
                {"op": each.op, "backend": each.backend.value, "reason": each.reason, "calls": calls}
                for each, calls in result.selection.demotions.counts.items()
            ],
        },
        "figures": [_figures(cell) for cell in result.cells],
        "layer_microseconds": result.layer_microseconds,
        "kernel_tables": [
            {"cell": title, "kernel_microseconds": table.kernel_microseconds, **asdict(table)}
            for title, table in result.kernel_tables
        ],
        "microbenchmarks": [
            {**asdict(each), "bandwidth_share": each.share(result.bandwidth)}
            for each in result.microbenchmarks
        ],
    }


def write_as_it_grows(stages: Iterable[BenchResult], path: Path, command: str) -> BenchResult:
    """Write a result file anew at every stage of a run, so that a fault in a later one loses nothing.

    Returns:
        the whole result.

    Raises:
        UsageError: it cannot be written.
    """
    result = None
    for result in stages:
        write_result(path, result_json(result, command))
    assert result is not None
    return result


def require_writable(path: Path) -> None:
    """Make the folder of a result file, and say before any measurement that the file cannot be written.

    Raises:
        UsageError: it cannot.
    """
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no regular file", _OTHER_PLACE)
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:100]}."):
            pass
    except OSError as error:
        raise _not_written(path, error) from error


def write_result(path: Path, content: Mapping[str, Any]) -> None:
    """Write a result file, whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise _not_written(path, error) from error


_OTHER_PLACE = "Name another place for the result."


def _not_written(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be written: {error.strerror or error}", _OTHER_PLACE)


def _figures(cell: Any) -> dict[str, Any]:
    return {
        **{key: value for key, value in asdict(cell).items() if key != "samples"},
        "roofline_share": cell.roofline_share,
        "samples": [asdict(sample) for sample in cell.samples],
    }


def _rule(rule: Any) -> dict[str, Any]:
    return {key: value.value if isinstance(value, Enum) else value for key, value in asdict(rule).items()}


def _hardware() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    probe = probe_gpus()
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "power_limit": probe.gpus[0].power_limit if probe.gpus else None,
        "cores_usable": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg(),
    }


def _software() -> dict[str, str | None]:
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "draftproof": draftproof.__version__,
        "cuda": torch.version.cuda,
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _commit() -> str:
    """As the environment names it, or of the checkout that the sources are tracked in; "" for an installed
    package, whatever repository its environment may lie in."""
    named = os.environ.get(COMMIT_VARIABLE)
    if named:
        return named
    source = Path(draftproof.__file__)
    try:
        if _git(source.parent, "ls-files", "--error-unmatch", source.name) is None:
            return ""
        return _git(source.parent, "describe", "--always", "--dirty", "--abbrev=40") or ""
    except OSError:
        return ""


def _git(folder: Path, *words: str) -> str | None:
    """What git answers, None when it refuses."""
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout.strip()
