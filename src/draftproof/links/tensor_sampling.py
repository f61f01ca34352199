"""Which rows of a tensor, and which tensors of a checkpoint, are read when not everything is.

Nothing is random: the same checkpoint gives the same sample everywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from draftproof.checkpoint.header import TensorEntry

LARGEST_ROW = 64 * 2**20
"""A row of more bytes is not read: no real matrix has one."""

_NUMBER = re.compile(r"\d+")


class RowRun(NamedTuple):
    """Neighbouring rows of a matrix: the first one, and how many."""

    first: int
    length: int


class MatrixForm(NamedTuple):
    """A tensor of any shape seen as rows of its last dimension.

    Attributes:
        rows: product of all dimensions but the last; 1 for a vector or a scalar.
        row_bytes: bytes of one of them.
    """

    rows: int
    row_bytes: int


def matrix_form(entry: TensorEntry) -> MatrixForm:
    """Rows and bytes of a row of a stored tensor; no rows when it is empty."""
    rows = math.prod(entry.shape[:-1])
    if entry.nbytes == 0 or rows == 0:
        return MatrixForm(0, 0)
    return MatrixForm(rows, entry.nbytes // rows)


def chosen_runs(form: MatrixForm, budget: int | None, most_runs: int = 8) -> tuple[RowRun, ...]:
    """The rows to read.

    Args:
        form: of the tensor.
        budget: bytes to stay at, or below where rows are short enough; None reads all rows.
        most_runs: runs that a sampled tensor is read in, from its first row to its last.

    Returns:
        runs in order, none of them overlapping; nothing for an empty tensor or absurdly long rows.
    """
    rows, row_bytes = form
    if rows == 0 or row_bytes > LARGEST_ROW:
        return ()
    if budget is None or rows * row_bytes <= budget:
        return (RowRun(0, rows),)
    runs = min(most_runs, max(1, budget // row_bytes), rows)
    count = max(1, budget // runs // row_bytes)
    if runs == 1:
        return (RowRun((rows - count) // 2, count),)
    return tuple(RowRun(number * (rows - count) // (runs - 1), count) for number in range(runs))


def pieces(run: RowRun, row_bytes: int, largest: int) -> Iterable[RowRun]:
    """A run in pieces of at most `largest` bytes, or one row."""
    step = max(1, largest // max(row_bytes, 1))
    for first in range(run.first, run.first + run.length, step):
        yield RowRun(first, min(step, run.first + run.length - first))


def kind_of(module: str) -> str:
    """The name of a module with its numbers left out: modules of one kind play the same role."""
    return _NUMBER.sub("#", module)


def spread(names: Sequence[str], members: int) -> list[str]:
    """Up to `members` of the names, in natural order, from the first to the last."""
    ordered = sorted(names, key=_natural)
    if members < 2:
        return ordered[len(ordered) // 2 :][:members]
    if len(ordered) <= members:
        return ordered
    return [ordered[number * (len(ordered) - 1) // (members - 1)] for number in range(members)]


def sample_of_kinds(modules: Iterable[str], members: int) -> list[str]:
    """A few modules of every kind (`layers.#.mlp.experts.#.up_proj`)."""
    kinds: dict[str, list[str]] = {}
    for module in modules:
        kinds.setdefault(kind_of(module), []).append(module)
    return [name for names in kinds.values() for name in spread(names, members)]


def _natural(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(name))
