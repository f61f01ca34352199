"""Commands for the tests of the boundary: each ends in its own way."""

from typing import Annotated

import typer

from draftproof.errors import EnvironmentProblem


def no_network(json: Annotated[bool, typer.Option("--json")] = False) -> int:
    """Raises an error of the tree."""
    raise EnvironmentProblem("the hub\x1b[31m\ncannot be reached", "Set HF_HUB_OFFLINE=1 to use the cache")


def defect(json: Annotated[bool, typer.Option("--json")] = False) -> int:
    """Raises what nobody expected."""
    raise IndexError("list index out of range")


def no_package() -> int:
    """Needs what is not installed."""
    raise ModuleNotFoundError("No module named 'torch'", name="torch")


def no_gpu_package() -> int:
    """Needs what is not installed, on a GPU."""
    raise ModuleNotFoundError("No module named 'triton'", name="triton")


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


def full_gpu() -> int:
    """Asks for more than the GPU has."""
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB.\nSee the documentation.")


def interrupted() -> int:
    """Is interrupted by the user."""
    raise KeyboardInterrupt


def three() -> int:
    """Ends with exit code 3."""
    return 3


def done() -> None:
    """Ends without a word."""


def many_lines() -> int:
    """Prints far more than a pipe holds, and has a verdict."""
    from draftproof.cli.console import report_console

    console = report_console()
    for number in range(20_000):
        console.print(number)
    return 1
