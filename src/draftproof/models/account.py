"""Loading is accounting: every tensor is taken once or skipped with a reason; anything left over stops the
start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from draftproof.checkpoint.header import TensorEntry
from draftproof.errors import AccountingError

NAMES_SHOWN = 5
"""Names that an error message spells out before it counts the rest."""


@dataclass(frozen=True)
class LoadReport:
    """What became of the checkpoint's tensors.

    Attributes:
        taken: tensors that became parameters.
        skipped: reason and number of tensors, most first.
    """

    taken: int
    skipped: tuple[tuple[str, int], ...]


class TensorReader(Protocol):
    """Where the values of tensors come from."""

    def read(self, entry: TensorEntry, device: torch.device) -> Tensor:
        """One tensor as its entry describes it, on the device."""
        ...

    def read_stack(self, entries: Sequence[TensorEntry], device: torch.device) -> Tensor:
        """Tensors of one dtype and shape as one, [entries, *shape]."""
        ...

    def close(self) -> None:
        """Nothing more is read."""
        ...


class ShardReader:
    """Reads the shards of a folder.

    Args:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Any] = {}

    def read(self, entry: TensorEntry, device: torch.device) -> Tensor:
        """Pages are read on first touch."""
        if entry.file not in self._files:
            self._files[entry.file] = safe_open(self._folder / entry.file, framework="pt")
        tensor: Tensor = self._files[entry.file].get_tensor(entry.name)
        return tensor.to(device)

    def read_stack(self, entries: Sequence[TensorEntry], device: torch.device) -> Tensor:
        """One copy to the device for all of them."""
        host = torch.device("cpu")
        return torch.stack([self.read(entry, host) for entry in entries]).to(device)

    def close(self) -> None:
        """Closing the files is left to the garbage collector."""
        self._files.clear()


class TensorAccount:
    """The tensors of one checkpoint, each to be taken or skipped exactly once.

    Args:
        reader: reads values; a folder stands for the shards in it.
        tensors: every tensor of the checkpoint by name.
        device: where taken tensors go.
    """

    def __init__(
        self, reader: TensorReader | Path, tensors: Mapping[str, TensorEntry], device: torch.device
    ) -> None:
        self._reader: TensorReader = ShardReader(reader) if isinstance(reader, Path) else reader
        self._tensors = tensors
        self._device = device
        self._taken: set[str] = set()
        self._skipped: dict[str, str] = {}

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds this tensor."""
        return name in self._tensors

    def entry(self, name: str) -> TensorEntry:
        """Its dtype and shape; AccountingError when it is missing."""
        if name not in self._tensors:
            raise AccountingError(
                f"tensor {name} is missing",
                "Run `draftproof verify` on the checkpoint to see everything that is.",
            )
        return self._tensors[name]

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        """Read a tensor onto the device, as stored.

        Raises:
            AccountingError: missing, taken before, skipped before, or not of this shape.
        """
        return self._reader.read(self._claim(name, shape), self._device)

    def take_stack(self, names: Sequence[str], shape: tuple[int, ...]) -> Tensor:
        """Read tensors of one dtype and shape onto the device as one, [names, *shape].

        Raises:
            AccountingError: as `take`, or they are stored in different dtypes.
        """
        entries = [self._claim(name, shape) for name in names]
        for entry in entries:
            if entry.dtype != entries[0].dtype:
                raise AccountingError(
                    f"tensor {entry.name} has dtype {entry.dtype}, {entries[0].name} has {entries[0].dtype}"
                )
        return self._reader.read_stack(entries, self._device)

    def _claim(self, name: str, shape: tuple[int, ...] | None) -> TensorEntry:
        """Mark a tensor as taken."""
        entry = self.entry(name)
        if name in self._taken or name in self._skipped:
            raise AccountingError(f"tensor {name} is used twice while loading")
        if shape is not None and tuple(entry.shape) != shape:
            raise AccountingError(
                f"tensor {name} has shape {list(entry.shape)}, the config asks for {list(shape)}"
            )
        self._taken.add(name)
        return entry

    def skip(self, name: str, reason: str) -> None:
        """Leave a tensor out on purpose; a tensor that is not there is no error."""
        if name in self._tensors and name not in self._taken:
            self._skipped[name] = reason

    def skip_prefix(self, prefix: str, reason: str) -> None:
        """Leave out every tensor whose name begins with `prefix`."""
        for name in self._tensors:
            if name.startswith(prefix):
                self.skip(name, reason)

    def close(self) -> LoadReport:
        """Check that nothing is left over.

        Raises:
            AccountingError: names the tensors that nothing asked for.
        """
        left = [name for name in self._tensors if name not in self._taken and name not in self._skipped]
        if left:
            shown = ", ".join(left[:NAMES_SHOWN]) + (
                f" and {len(left) - NAMES_SHOWN} more" if len(left) > NAMES_SHOWN else ""
            )
            raise AccountingError(
                f"{len(left)} tensors of the checkpoint have no place in the model: {shown}",
                "Run `draftproof verify` on it; the config or the tensor names are not what they claim.",
            )
        self._reader.close()
        return LoadReport(len(self._taken), tuple(Counter(self._skipped.values()).most_common()))
