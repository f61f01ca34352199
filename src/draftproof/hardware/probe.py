"""Which GPUs this machine has, as nvidia-smi says; nothing is imported that could start a driver."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from dataclasses import dataclass, replace

from draftproof.errors import UsageError
from draftproof.hardware.gpu import Figure, Gpu
from draftproof.hardware.gpu_choice import find_gpu, parse_capability

PROGRAM = "nvidia-smi"
QUERY = "name,compute_cap,memory.total,power.limit,power.default_limit"
TIMEOUT_SECONDS = 10.0
COMMAND = (PROGRAM, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")
_MIB = 2**20
_COLUMNS = 5


@dataclass(frozen=True)
class ProbedGpu:
    """One GPU as the driver describes it.

    Attributes:
        name: "NVIDIA H200".
        capability: compute capability times ten; None when the driver does not say.
        memory: bytes; None when the driver does not say (memory shared with the processor).
        power_limit: watts in force; None when not said.
        default_power_limit: watts that the board comes with; None when not said.
    """

    name: str
    capability: int | None
    memory: int | None
    power_limit: float | None
    default_power_limit: float | None

    @property
    def is_throttled(self) -> bool:
        """Its power limit was lowered."""
        if self.power_limit is None or self.default_power_limit is None:
            return False
        return self.power_limit < 0.97 * self.default_power_limit


@dataclass(frozen=True)
class Probe:
    """What was found.

    Attributes:
        gpus: all GPUs, in the driver's order.
        reason: why there are none; empty when there are.
    """

    gpus: tuple[ProbedGpu, ...]
    reason: str = ""

    @property
    def gpu(self) -> Gpu | None:
        """The first GPU with the table's figures and the memory that the driver reports.

        None when there is no GPU, or the table does not know it.
        """
        if not self.gpus:
            return None
        probed = self.gpus[0]
        try:
            gpu = find_gpu(probed.name)
        except UsageError:
            return None
        if probed.memory:
            gpu = replace(
                gpu, memory=Figure(probed.memory, f"nvidia-smi reports {probed.memory // _MIB} MiB")
            )
        return gpu


def probe_gpus(program: str = PROGRAM, timeout: float = TIMEOUT_SECONDS) -> Probe:
    """Asks nvidia-smi. Never raises: no program, no driver and no answer are reasons.

    Args:
        program: name or path of nvidia-smi.
        timeout: seconds that it may take.
    """
    path = shutil.which(program)
    if path is None:
        return Probe((), f"there is no {program} on this machine")
    try:
        done = subprocess.run(
            (path, *COMMAND[1:]), capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return Probe((), f"{program} did not answer within {timeout:g} seconds")
    except (OSError, UnicodeDecodeError) as error:
        return Probe((), f"{program} could not be run: {error}")
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        return Probe((), f"{program} failed: {said[0][:200] if said else f'exit code {done.returncode}'}")
    gpus = tuple(_gpu(row) for row in csv.reader(io.StringIO(done.stdout)) if len(row) == _COLUMNS)
    return Probe(gpus, "" if gpus else f"{program} lists no GPU")


def _gpu(row: list[str]) -> ProbedGpu:
    name, capability, memory, limit, default = (cell.strip() for cell in row)
    mebibytes = _number(memory)
    return ProbedGpu(
        name,
        _capability(capability),
        int(mebibytes * _MIB) if mebibytes else None,
        _number(limit),
        _number(default),
    )


def _capability(text: str) -> int | None:
    try:
        return parse_capability(text)
    except UsageError:
        return None


def _number(text: str) -> float | None:
    """A cell; None for "[N/A]" and the like."""
    try:
        return float(text)
    except ValueError:
        return None
