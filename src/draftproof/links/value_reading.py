"""How much of the values link 2 reads, and reading it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.precision import ModulePrecision
from draftproof.errors import CheckpointError, EnvironmentProblem
from draftproof.links.progress import Progress
from draftproof.links.tensor_sampling import sample_of_kinds
from draftproof.links.weight_values import ModuleValues, read_module

REMOTE_SHARE = 200
"""At most one byte in so many of a remote checkpoint is read for its values."""
REMOTE_LEAST = 64 * 2**10
REMOTE_MOST = 16 * 2**20


@dataclass(frozen=True)
class ValueReading:
    """How much is read.

    Attributes:
        head_members: modules of the head of every kind; None reads all.
        target_members: the same for everything else.
        budget: bytes of one weight; None reads whole weights.
        most_runs: runs of rows that a weight is sampled in; few where every read is a request.
        most_spans: places that scales of one number are read from; None reads all of them.
        readers: reads at a time.
    """

    head_members: int | None
    target_members: int | None
    budget: int | None
    most_runs: int = 8
    most_spans: int | None = 4096
    readers: int = 2


SAMPLE = ValueReading(head_members=None, target_members=4, budget=256 * 2**10)
"""The default on a folder: the whole head, bounded rows of large weights, a sample of the rest."""
NOTHING = ValueReading(head_members=0, target_members=0, budget=0)
"""Headers only."""
FULL = ValueReading(head_members=None, target_members=None, budget=None, most_spans=None)
"""Every byte."""
REMOTE_SAMPLE = ValueReading(
    head_members=4, target_members=1, budget=32 * 2**10, most_runs=1, most_spans=16, readers=8
)
"""The default on a repository: a few kilobytes of some modules, the head's first."""


@dataclass(frozen=True)
class StoredModules:
    """Every module that has a weight: matrices as they are stored, other tensors as modules of one tensor.

    Attributes:
        head: those of the MTP head.
        target: everything else.
    """

    head: Sequence[ModulePrecision]
    target: Sequence[ModulePrecision]

    @property
    def all(self) -> tuple[ModulePrecision, ...]:
        """Head first."""
        return (*self.head, *self.target)


@dataclass(frozen=True)
class ReadValues:
    """What was read.

    Attributes:
        head: modules of the head.
        target: everything else.
        head_total: modules that the head has.
        target_total: modules that there are beside it.
        unreadable: sentences about modules that could not be read.
    """

    head: tuple[ModuleValues, ...]
    target: tuple[ModuleValues, ...]
    head_total: int
    target_total: int
    unreadable: tuple[str, ...]

    @property
    def all(self) -> tuple[ModuleValues, ...]:
        """Head first."""
        return (*self.head, *self.target)

    @property
    def bytes_read(self) -> int:
        """Bytes of weights and scales."""
        return sum(values.bytes_read for values in self.all)

    @property
    def complete(self) -> bool:
        """Every byte of every module."""
        whole = all(values.complete for values in self.all) and not self.unreadable
        return whole and len(self.all) == self.head_total + self.target_total


def read_values(
    checkpoint: Checkpoint, modules: StoredModules, reading: ValueReading, progress: Progress
) -> ReadValues:
    """Reads modules of head and target, or the sample of them that `reading` asks for.

    Raises:
        EnvironmentProblem: the hub cannot be reached any more.
    """
    chosen = [
        *_chosen(modules.head, reading.head_members),
        *_chosen(modules.target, reading.target_members),
    ]
    if checkpoint.folder is None:
        chosen = _within(chosen, reading, _remote_allowance(checkpoint))
    unreadable: list[str] = []
    source = checkpoint.source

    def read(stored: ModulePrecision) -> ModuleValues | None:
        try:
            return read_module(source, stored, reading.budget, reading.most_runs)
        except EnvironmentProblem:
            raise
        except CheckpointError as error:
            unreadable.append(f"{stored.module}: {error.message}")
            return None

    found: list[ModuleValues] = []
    with ThreadPoolExecutor(max_workers=reading.readers) as pool:
        for done, values in enumerate(pool.map(read, chosen), start=1):
            progress.advance("reading values", done, len(chosen))
            if values is not None:
                found.append(values)
    in_head = {stored.module for stored in modules.head}
    return ReadValues(
        head=tuple(values for values in found if values.stored.module in in_head),
        target=tuple(values for values in found if values.stored.module not in in_head),
        head_total=len(modules.head),
        target_total=len(modules.target),
        unreadable=tuple(sorted(unreadable)),
    )


def _chosen(modules: Sequence[ModulePrecision], members: int | None) -> list[ModulePrecision]:
    if members is None:
        return list(modules)
    names = set(sample_of_kinds((stored.module for stored in modules), members))
    return [stored for stored in modules if stored.module in names]


def _remote_allowance(checkpoint: Checkpoint) -> int:
    share = checkpoint.inventory.total_bytes // REMOTE_SHARE
    return max(REMOTE_LEAST, min(share, REMOTE_MOST))


def _within(chosen: list[ModulePrecision], reading: ValueReading, allowance: int) -> list[ModulePrecision]:
    """As many of the modules, in order, as fit the allowance."""
    fitting = []
    for stored in chosen:
        scales = sum(entry.nbytes for entry in stored.companions.values())
        weight = stored.weight.nbytes if stored.weight else 0
        cost = scales + (weight if reading.budget is None else min(weight, reading.budget))
        if cost <= allowance:
            allowance -= cost
            fitting.append(stored)
    return fitting
