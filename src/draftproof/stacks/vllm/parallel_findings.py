"""What of a command's parallelism does not fit the checkpoint or the GPUs that were named."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.hardware.parallel import divisions, possible_ranks
from draftproof.hardware.shape import shape_of
from draftproof.hardware.weights import WeightTable
from draftproof.stacks.command.binding import BoundCommand
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.served_weights import served_weights
from draftproof.stacks.situation import Situation

TENSOR_PARALLEL = "--tensor-parallel-size"
_NOTHING = WeightTable((), "not known", from_files=False)


def ranks_of(bound: BoundCommand) -> int:
    """The tensor parallel size that a command gives; 1 when it gives none, or no number."""
    value = bound.value(TENSOR_PARALLEL)
    return int(value) if value is not None and value.isdigit() and int(value) > 0 else 1


def parallel_findings(
    bound: BoundCommand, checkpoint: ServedCheckpoint, situation: Situation
) -> Iterator[LaunchFinding]:
    """Divisions that do not come out, and a number of GPUs that is not the one that was named."""
    given = bound.given(TENSOR_PARALLEL)
    ranks = ranks_of(bound)
    subject = str(given.flag) if given is not None else f"no {TENSOR_PARALLEL}"
    places: tuple[Place, ...] = (given.option.place,) if given is not None and given.option else ()
    if situation.gpu is not None and ranks != situation.tensor_parallel and "-dp" not in str(bound.command):
        yield LaunchFinding(
            "ranks-agree",
            subject,
            Ruling.WARNS,
            "The command uses the GPUs that were named.",
            f"{TENSOR_PARALLEL} {situation.tensor_parallel}",
            f"{ranks} of {situation.tensor_parallel} GPUs, so that memory and speed are judged for another number",
            f"give {TENSOR_PARALLEL} {situation.tensor_parallel}",
            places,
        )
    if checkpoint.spec is None or ranks == 1:
        return
    shape = shape_of(checkpoint.spec)
    weights = served_weights(checkpoint) or _NOTHING
    broken = [division for division in divisions(shape, weights, ranks) if not division.holds]
    possible = ", ".join(str(number) for number in possible_ranks(shape, weights))
    claim = "The checkpoint divides over the ranks of the command."
    for division in broken:
        yield LaunchFinding(
            "tensor-parallel-divides",
            subject,
            Ruling.BREAKS,
            claim,
            division.expected,
            f"{division.claim} It does not: {division.observed}",
            f"give {TENSOR_PARALLEL} one of {possible}",
            places,
        )
    if not broken:
        yield LaunchFinding(
            "tensor-parallel-divides", subject, Ruling.HOLDS, claim, "heads, state and experts that divide",
            f"everything divides over {ranks}", "", places,
        )  # fmt: skip
