"""The ranks of a command, the same for every stack: the GPUs that were named, and what divides over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftproof.hardware.parallel import divisions, possible_ranks
from draftproof.hardware.shape import shape_of
from draftproof.hardware.weights import WeightTable
from draftproof.stacks.launch_facts import LaunchFinding, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.served_weights import served_weights
from draftproof.stacks.situation import Situation

_NOTHING = WeightTable((), "not known", from_files=False)
_CLAIM = "The checkpoint divides over the ranks of the command."
USED_AS_NAMED = "The command uses the GPUs that were named."


@dataclass(frozen=True)
class RanksGiven:
    """What a command says about its ranks.

    Attributes:
        ranks: tensor parallel size in force.
        option: the option that sets it.
        subject: the words of the command that it is about.
        places: where the option is declared.
        is_spread_otherwise: data or pipeline parallelism is given, so that GPUs are used in other ways too.
    """

    ranks: int
    option: str
    subject: str
    places: tuple[Place, ...]
    is_spread_otherwise: bool


def rank_findings(given: RanksGiven, situation: Situation) -> Iterator[LaunchFinding]:
    """A number of GPUs that is not the one that was named."""
    named = situation.tensor_parallel
    if situation.gpu is None or given.ranks == named or given.is_spread_otherwise:
        return
    yield LaunchFinding(
        check="ranks-agree",
        subject=given.subject,
        ruling=Ruling.WARNS,
        claim=USED_AS_NAMED,
        expected=f"{given.option} {named}",
        observed=f"{given.ranks} of {named} GPUs, while memory and speed are judged for all of them"
        if given.ranks < named
        else f"{given.ranks} GPUs, while memory and speed are judged for {named}",
        remedy=f"{given.option} {named}",
        places=given.places,
    )


def division_findings(
    checkpoint: ServedCheckpoint, ranks: int, subject: str, option: str, places: tuple[Place, ...]
) -> Iterator[LaunchFinding]:
    """One finding for each thing that does not divide, or one that says that everything does.

    Args:
        checkpoint: the model; nothing is said about one of unknown shape.
        ranks: tensor parallel size in force.
        subject: the words of the command that it is about.
        option: the option to change.
        places: where it is declared.
    """
    if checkpoint.spec is None or ranks == 1:
        return
    shape = shape_of(checkpoint.spec)
    weights = served_weights(checkpoint) or _NOTHING
    broken = [division for division in divisions(shape, weights, ranks) if not division.holds]
    possible = ", ".join(str(number) for number in possible_ranks(shape, weights))
    for division in broken:
        yield LaunchFinding(
            check="tensor-parallel-divides",
            subject=subject,
            ruling=Ruling.BREAKS,
            claim=_CLAIM,
            expected=division.expected,
            observed=f"{division.claim} It does not: {division.observed}",
            remedy=f"{option} with one of {possible}",
            places=places,
        )
    if not broken:
        yield LaunchFinding(
            check="tensor-parallel-divides",
            subject=subject,
            ruling=Ruling.HOLDS,
            claim=_CLAIM,
            expected="heads, state and experts that divide",
            observed=f"everything divides over {ranks}",
            places=places,
        )
