"""`draftproof doctor`: versions, devices, kernels chosen and why; non-zero when a required check fails."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from draftproof import __version__
from draftproof.cli.console import report_console, write_text
from draftproof.errors import DraftproofError, EnvironmentProblem

REQUIRED_PACKAGES = ("numpy", "safetensors", "huggingface_hub", "pydantic", "rich", "typer")
ENGINE_PACKAGES = ("torch", "tokenizers", "jinja2")
OPTIONAL_PACKAGES = ("triton", "cuda-bindings", "transformers", "sglang", "vllm")


class State(Enum):
    """Outcome of a check."""

    GOOD = "ok"
    FAILED = "failed"
    ABSENT = "absent"
    """Not there, and not needed by everything."""


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report.

    Attributes:
        area: "package", "device", "kernel", "GPU kernel", "checkpoint".
        name: what was checked.
        state: outcome.
        detail: what was found, and why it was chosen.
        required: a failure makes the exit code non-zero.
    """

    area: str
    name: str
    state: State
    detail: str
    required: bool = False


def doctor(as_json: Annotated[bool, typer.Option("--json", help="The checks as JSON.")] = False) -> int:
    """Check this machine: versions, devices, kernels chosen and why, and the embedded checkpoint.

    Exit code 0 when every required check passes, 4 otherwise.
    """
    checks = [*_packages(), *_devices(), *_kernels(), *_gpu_kernels(), *_embedded_checkpoint()]
    failed = [check for check in checks if check.required and check.state is not State.GOOD]
    exit_code = EnvironmentProblem.exit_code if failed else 0
    if as_json:
        rows = [{**asdict(check), "state": check.state.value} for check in checks]
        report = {
            "kind": "doctor",
            "schema_version": "1.0",
            "draftproof_version": __version__,
            "checks": rows,
        }
        write_text(json.dumps({**report, "exit_code": exit_code}, indent=2) + "\n")
    else:
        _print(checks, failed)
    return exit_code


def _packages() -> Iterator[Check]:
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Check("package", "python", State.GOOD if supported else State.FAILED, python, required=True)
    groups = (
        (REQUIRED_PACKAGES, True, ""),
        (ENGINE_PACKAGES, False, "needed to generate: pip install 'draftproof[engine]'"),
        (OPTIONAL_PACKAGES, False, "optional"),
    )
    for names, required, absent in groups:
        for name in names:
            try:
                yield Check("package", name, State.GOOD, version(name), required)
            except PackageNotFoundError:
                yield Check("package", name, State.ABSENT, absent or "required", required)


def _devices() -> Iterator[Check]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Check("device", "cpu", State.GOOD, f"{_processor()}, {cores} cores usable")
    try:
        import torch
    except ImportError:
        return
    yield Check("device", "cpu instructions", State.GOOD, torch.backends.cpu.get_cpu_capability())
    if not torch.cuda.is_available():
        yield Check("device", "cuda", State.ABSENT, "no CUDA device that torch can use")
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        memory = f"{properties.total_memory / 2**30:.0f} GiB"
        detail = f"{properties.name}, SM{properties.major}{properties.minor}, {memory}"
        yield Check("device", f"cuda:{index}", State.GOOD, detail)


def _kernels() -> Iterator[Check]:
    try:
        from draftproof.cli import kernel_checks
    except ImportError as error:
        yield Check("kernel", "all", State.ABSENT, f"not checked: {error.name} is missing")
        return
    for name, chosen, run in kernel_checks.KERNEL_CHECKS:
        yield _run("kernel", name, chosen, run, required=True)


def _gpu_kernels() -> Iterator[Check]:
    """A kernel that is not what the table prefers is a failed check: slower than promised, or wrong."""
    try:
        from draftproof.cli.gpu_kernel_checks import gpu_kernel_checks
    except ImportError:
        return  # without torch there is no device to choose for
    for each in gpu_kernel_checks():
        state = State.GOOD if each.good else State.FAILED
        yield Check("GPU kernel", each.name, state, each.detail, required=True)


def _embedded_checkpoint() -> Iterator[Check]:
    from draftproof.checkpoint.checkpoint import open_checkpoint
    from draftproof.links.config import check_config
    from draftproof.links.weights import check_weights

    def links() -> str:
        checkpoint = open_checkpoint("tiny")
        reports = (check_config(checkpoint), check_weights(checkpoint))
        for report in reports:
            if report.verdict.exit_code:
                raise EnvironmentProblem(
                    f"link {report.link.value} is {report.verdict.word}: {report.summary}"
                )
        return f"{len(checkpoint.inventory.tensors)} tensors, links config and weights hold"

    yield _run("checkpoint", "tiny", lambda: "embedded", links, required=True)


def _run(area: str, name: str, chosen: Callable[[], str], run: Callable[[], str], required: bool) -> Check:
    try:
        return Check(area, name, State.GOOD, f"{chosen()}: {run()}", required)
    except (DraftproofError, ArithmeticError, RuntimeError) as error:
        return Check(area, name, State.FAILED, str(error).splitlines()[0], required)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - a device file, not a path of ours
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _print(checks: list[Check], failed: list[Check]) -> None:
    console = report_console()
    console.print(Text.assemble(("draftproof doctor", "bold"), f"  {__version__}"))
    styles = {State.GOOD: "green", State.FAILED: "bold red", State.ABSENT: "dim"}
    for area in dict.fromkeys(check.area for check in checks):
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, min_width=18)
        table.add_column(no_wrap=True, min_width=6)
        table.add_column(overflow="fold")
        for check in checks:
            if check.area == area:
                table.add_row(
                    f"  {check.name}", Text(check.state.value, style=styles[check.state]), Text(check.detail)
                )
        console.print()
        console.print(Text(f"{area}s", style="bold"))
        console.print(table)
    console.print()
    names = ", ".join(f"{check.area} {check.name}" for check in failed)
    console.print(
        Text(f"failed: {names}", style="bold red")
        if failed
        else Text("Everything required is there.", style="green")
    )
