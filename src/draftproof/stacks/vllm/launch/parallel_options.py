"""The options of a command that spread a model over GPUs."""

from __future__ import annotations

from draftproof.stacks.command.binding import BoundCommand
from draftproof.stacks.parallel_findings import RanksGiven

TENSOR_PARALLEL = "--tensor-parallel-size"
_OTHER_SPREADS = ("--data-parallel-size", "--pipeline-parallel-size")


def ranks_of(bound: BoundCommand) -> int:
    """The tensor parallel size that a command gives; 1 when it gives none, or no number."""
    value = bound.value(TENSOR_PARALLEL)
    return int(value) if value is not None and value.isdigit() and int(value) > 0 else 1


def ranks_given(bound: BoundCommand) -> RanksGiven:
    """The same with the words and the line that it comes from."""
    given = bound.given(TENSOR_PARALLEL)
    return RanksGiven(
        ranks=ranks_of(bound),
        option=TENSOR_PARALLEL,
        subject=str(given.flag) if given is not None else f"no {TENSOR_PARALLEL}",
        places=(given.option.place,) if given is not None and given.option else (),
        is_spread_otherwise=any(bound.given(name) is not None for name in _OTHER_SPREADS),
    )
