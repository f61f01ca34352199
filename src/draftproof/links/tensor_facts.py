"""Single tensors by name, with figures of their values: what the commands beside value claims show."""

from __future__ import annotations

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import ModulePrecision, decide, module_precision
from draftproof.errors import CheckpointError, EnvironmentProblem, UsageError
from draftproof.evidence.inventory import FoundTensors, TensorFacts
from draftproof.links.subject import subject_of
from draftproof.links.value_statistics import ValueStatistics
from draftproof.links.weight_values import ModuleValues, read_module

MOST_SHOWN = 20
_LOCAL_BUDGET = 64 * 2**20
_REMOTE_BUDGET = 256 * 2**10


def tensors_named(checkpoint: Checkpoint, part: str) -> FoundTensors:
    """Tensors by name: the one of exactly that name, else all whose names hold it; of those the first few.

    Args:
        checkpoint: opened.
        part: a name, or a part of names.

    Raises:
        UsageError: no tensor has such a name.
        EnvironmentProblem: the hub cannot be reached any more.
    """
    inventory = checkpoint.inventory
    entries = [*inventory.tensors.values(), *inventory.unindexed]
    found = [entry for entry in entries if entry.name == part]
    found = found or [entry for entry in entries if part in entry.name]
    if not found:
        raise UsageError(
            f"no tensor of {checkpoint.location.argument} has '{part}' in its name",
            f"It has {len(entries):,} tensors; try a shorter part.",
        )
    shown = tuple(_facts(checkpoint, entry) for entry in found[:MOST_SHOWN])
    return FoundTensors(subject_of(checkpoint), part, len(found), shown)


def _facts(checkpoint: Checkpoint, entry: TensorEntry) -> TensorFacts:
    budget = _REMOTE_BUDGET if checkpoint.folder is None else _LOCAL_BUDGET
    runs = 1 if checkpoint.folder is None else 8
    stored = _module_of(checkpoint, entry)
    try:
        values = read_module(checkpoint.source, stored, budget, runs)
        about = _about(values) if values else "not shown: the dtype is not known"
    except EnvironmentProblem:
        raise
    except CheckpointError as error:
        values, about = None, f"not read: {error.message}"
    return TensorFacts(
        name=entry.name,
        dtype=entry.dtype,
        shape=entry.shape,
        file=entry.file,
        start=entry.start,
        size=entry.nbytes,
        values_of=about,
        figures=_figures(values.weight) if values else (),
    )


def _about(values: ModuleValues) -> str:
    extent = "all" if values.complete else "a sample of"
    scaled = ", dequantised" if values.dequantised and not values.stored.precision.is_plain else ""
    return f"{extent} {values.weight.count:,}{scaled}"


def _module_of(checkpoint: Checkpoint, entry: TensorEntry) -> ModulePrecision:
    """The module whose weight a tensor is, with its scales; the tensor alone when it is something else."""
    module = entry.name.rpartition(".")[0]
    for name in (module, entry.name):
        stored = module_precision(name, checkpoint.inventory) if name else None
        if stored is not None and stored.weight is entry:
            return stored
    return decide(entry.name, {"weight": entry})


def _figures(values: ValueStatistics) -> tuple[tuple[str, float], ...]:
    if values.count == 1 and not values.not_finite:
        return (("value", values.mean),)
    return (
        ("mean", values.mean),
        ("RMS", values.rms),
        ("smallest", values.minimum),
        ("largest", values.maximum),
        ("zeros", values.zeros),
        ("not finite", values.not_finite),
    )
