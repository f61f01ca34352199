"""Every error that draftproof raises on purpose, in one tree.

::

    DraftproofError
    ├── UsageError                exit 2  the request itself cannot be carried out
    │   └── UnsupportedRequest    exit 2  understood, but this engine does not do it (images, ...)
    ├── CheckpointError           exit 1  the files are broken or contradict each other
    │   ├── HeaderError                   bytes that are no safetensors header
    │   ├── ConfigError                   a config file that cannot be read or makes no sense
    │   └── AccountingError               a tensor left over, missing, or written twice at load
    ├── EngineFault               exit 1  the engine computed something that cannot be right
    │   └── LogitsFault                   logits that are not numbers, or leave no token to choose
    ├── UnknownArchitecture       exit 3  nothing is known about this architecture
    └── EnvironmentProblem        exit 4  network, cache, driver or package is missing
        └── StackError            exit 4  a serving stack's source is not there, or is no such source
            └── SourceError               one of its files cannot be read or parsed

Each error names the thing and the remedy in one line; the command line prints that line and exits with
``exit_code``. The codes are those of the verdicts: 0 proven, 1 disproved, 2 usage, 3 not enough evidence,
4 environment, 130 interrupted.
"""

from __future__ import annotations


class DraftproofError(Exception):
    """Base of the tree.

    Args:
        message: names the thing that is wrong (a path, field or tensor) and what was found.
        remedy: what the user can do about it; empty when the message says it already.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}. {self.remedy}" if self.remedy else self.message


class UsageError(DraftproofError):
    """The request cannot be carried out: wrong argument, missing folder, prompt too long."""

    exit_code = 2


class UnsupportedRequest(UsageError):
    """The request is understood, but this engine does not do it."""


class CheckpointError(DraftproofError):
    """The checkpoint's files are broken or contradict each other."""

    exit_code = 1


class HeaderError(CheckpointError):
    """A file is not a well-formed safetensors file."""


class ConfigError(CheckpointError):
    """A config file cannot be read, or a value in it makes no sense."""


class AccountingError(CheckpointError):
    """Loading left a tensor over, missed one, or wrote one twice."""


class EngineFault(DraftproofError):
    """The engine computed something that cannot be right; going on would return garbage."""

    exit_code = 1


class LogitsFault(EngineFault):
    """Logits hold NaN or +inf, or leave no token to choose.

    Args:
        message: what was found.
        rows: the rows of the logits that are at fault, in order; the others are sound.
    """

    def __init__(self, message: str, rows: tuple[int, ...]) -> None:
        super().__init__(message)
        self.rows = rows


class UnknownArchitecture(DraftproofError):
    """Nothing is known about this architecture, so nothing can be proven about it."""

    exit_code = 3


class EnvironmentProblem(DraftproofError):
    """Network, cache, driver or a package is missing."""

    exit_code = 4


class StackError(EnvironmentProblem):
    """A serving stack's source cannot be found, is incomplete, or is something else."""


class SourceError(StackError):
    """One file of a stack's source cannot be read or parsed; the others are not affected.

    Args:
        message: what is wrong with it, the file named.
        file: its path relative to the root of the source.
        line: the line that is at fault, from 1; 0 when it is the whole file.
    """

    def __init__(self, message: str, file: str, line: int = 0) -> None:
        super().__init__(message)
        self.file = file
        self.line = line


_EXTRAS = {
    **dict.fromkeys(("triton", "cuda"), "gpu"),
    **dict.fromkeys(("fastapi", "llguidance", "orjson", "prometheus_client", "uvicorn"), "server"),
}
"""The extra of draftproof that brings a package, where it is not "engine"."""
_GPU_OUT_OF_MEMORY = "OutOfMemoryError"
"""torch's own class, by name: most commands never import torch."""


def known_problem(error: Exception) -> DraftproofError | None:
    """The error of this tree that says what `error` means to a user; None for a defect of draftproof."""
    if isinstance(error, DraftproofError):
        return error
    if isinstance(error, MemoryError):
        return EnvironmentProblem("out of memory")
    if type(error).__name__ == _GPU_OUT_OF_MEMORY:
        remedy = "Lower --max-length or --batch, or free the GPU of other processes."
        return EnvironmentProblem("the GPU is out of memory", remedy)
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("draftproof"):
        extra = _EXTRAS.get(str(error.name).partition(".")[0], "engine")
        message = f"the package {error.name} is not installed"
        return EnvironmentProblem(message, f"Run: pip install 'draftproof[{extra}]'")
    return None
