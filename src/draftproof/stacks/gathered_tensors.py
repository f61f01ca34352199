"""Tensors of a checkpoint by name, listed when somebody asks for single ones: trunks have up to 371,444."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from draftproof.checkpoint.alike import AlikeTensors, gather_alike
from draftproof.checkpoint.header import BITS_PER_ELEMENT, TensorEntry
from draftproof.stacks.served_checkpoint import StoredTensor


class LazyTensors(Mapping[str, StoredTensor]):
    """Tensors that are listed when somebody looks at them.

    Args:
        listing: makes the list.
    """

    def __init__(self, listing: Callable[[], Mapping[str, StoredTensor]]) -> None:
        self._listing = listing
        self._tensors: Mapping[str, StoredTensor] | None = None

    def __getitem__(self, name: str) -> StoredTensor:
        return self._listed()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed())

    def __len__(self) -> int:
        return len(self._listed())

    def _listed(self) -> Mapping[str, StoredTensor]:
        if self._tensors is None:
            self._tensors = self._listing()
        return self._tensors


class GatheredTensors(LazyTensors):
    """Tensors of which those that are alike are together already.

    Args:
        alike: all of them.
    """

    def __init__(self, alike: tuple[AlikeTensors, ...]) -> None:
        super().__init__(lambda: {entry.name: stored(entry) for entry in entries_of(alike)})
        self.alike = alike


def alike_in(tensors: Mapping[str, StoredTensor]) -> tuple[AlikeTensors, ...]:
    """Tensors with those that are alike together; at once where they were gathered before."""
    if isinstance(tensors, GatheredTensors):
        return tensors.alike
    return gather_alike(map(_entry, tensors.values()))


def entries_of(alike: Iterable[AlikeTensors]) -> Iterator[TensorEntry]:
    """Every single tensor."""
    return (entry for kind in alike for entry in kind.members.values())


def stored(entry: TensorEntry) -> StoredTensor:
    """What a stack gets to see of a tensor."""
    return StoredTensor(entry.name, entry.shape, entry.dtype)


def _entry(tensor: StoredTensor) -> TensorEntry:
    size = math.prod(tensor.shape) * BITS_PER_ELEMENT.get(tensor.dtype, 16) // 8
    return TensorEntry(tensor.name, tensor.dtype, tensor.shape, "", 0, size)
