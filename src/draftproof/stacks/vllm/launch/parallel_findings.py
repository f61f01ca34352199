"""How many GPUs a command uses, and whether they are the ones that were named."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.stacks.command.binding import BoundCommand
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.situation import Situation

TENSOR_PARALLEL = "--tensor-parallel-size"
_OTHER_SPREADS = ("--data-parallel-size", "--pipeline-parallel-size")


def ranks_of(bound: BoundCommand) -> int:
    """The tensor parallel size that a command gives; 1 when it gives none, or no number."""
    value = bound.value(TENSOR_PARALLEL)
    return int(value) if value is not None and value.isdigit() and int(value) > 0 else 1


def parallel_findings(bound: BoundCommand, situation: Situation) -> Iterator[LaunchFinding]:
    """A number of GPUs that is not the one that was named."""
    given = bound.given(TENSOR_PARALLEL)
    ranks = ranks_of(bound)
    subject = str(given.flag) if given is not None else f"no {TENSOR_PARALLEL}"
    places: tuple[Place, ...] = (given.option.place,) if given is not None and given.option else ()
    is_spread = any(bound.given(name) is not None for name in _OTHER_SPREADS)
    if situation.gpu is not None and ranks != situation.tensor_parallel and not is_spread:
        yield LaunchFinding(
            "ranks-agree",
            subject,
            Ruling.WARNS,
            "The command uses the GPUs that were named.",
            f"{TENSOR_PARALLEL} {situation.tensor_parallel}",
            f"{ranks} of {situation.tensor_parallel} GPUs, while memory and speed are judged for all of them",
            f"give {TENSOR_PARALLEL} {situation.tensor_parallel}",
            places,
        )
