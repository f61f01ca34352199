"""A checkpoint, opened: where it is, what its config files say, and what its weight files hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftproof.checkpoint.config import ConfigFiles, read_config_files
from draftproof.checkpoint.finding import FindingKind
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.inventory import FileWatcher, Inventory, nobody, take_inventory
from draftproof.checkpoint.location import FolderLocation, HubLocation, Location, resolve
from draftproof.checkpoint.source import LocalSource, Source
from draftproof.errors import UsageError


@dataclass(frozen=True)
class Checkpoint:
    """Everything that can be known without reading weights.

    Attributes:
        location: what the user's argument meant.
        source: read access to its files.
        config: config.json and the files beside it.
        inventory: the tensors, the files, and what is wrong with them.
    """

    location: Location
    source: Source
    config: ConfigFiles
    inventory: Inventory

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None for a repository that is read remotely."""
        return self.source.folder if isinstance(self.source, LocalSource) else None

    def read_tensor_bytes(self, entry: TensorEntry) -> bytes:
        """All data of one tensor, as stored.

        Raises:
            CheckpointError: the file is truncated or gone.
        """
        return self.source.read_range(entry.file, entry.start, entry.nbytes)

    def read_rows(self, entry: TensorEntry, first: int, count: int) -> bytes:
        """Data of `count` rows (indices of the first dimension) of one tensor, from row `first`.

        Raises:
            CheckpointError: the file is truncated or gone.
            ValueError: the tensor has no such rows.
        """
        rows = entry.shape[0] if entry.shape else 1
        if not 0 <= first <= first + count <= rows:
            raise ValueError(f"{entry.name} has {rows} rows, not {first} to {first + count}")
        row_bytes = entry.nbytes // rows if rows else 0
        return self.source.read_range(entry.file, entry.start + first * row_bytes, count * row_bytes)


def open_checkpoint(argument: str, watcher: FileWatcher = nobody) -> Checkpoint:
    """Opens a folder, `tiny`, or a repository on the hub; reads config files and headers only.

    Broken files do not raise here: they are problems of the config files and findings of the inventory, so
    that everything else can still be looked at.

    Args:
        argument: what the user wrote (`location.resolve`).
        watcher: is told how many weight files have been read.

    Raises:
        UsageError: there is no such folder, or it holds no checkpoint.
        CheckpointError: the folder cannot be listed.
        EnvironmentProblem: the hub cannot be reached, or refuses.
    """
    location = resolve(argument)
    source = open_source(location)
    inventory = take_inventory(source, watcher)
    only_nothing = all(finding.kind is FindingKind.NO_WEIGHTS for finding in inventory.findings)
    if not inventory.files and only_nothing and "config.json" not in {*source.list_files(), *source.refused}:
        raise UsageError(
            f"{location} holds no checkpoint: neither config.json nor weight files",
            "Name the folder or repository that has them.",
        )
    return Checkpoint(location, source, read_config_files(source), inventory)


def open_source(location: Location) -> Source:
    """Read access to a location's files; errors as `open_checkpoint`."""
    if isinstance(location, FolderLocation):
        return LocalSource(location.folder)
    return _open_hub(location)


def _open_hub(location: HubLocation) -> Source:
    # huggingface_hub takes half a second to import; a folder must not pay for it.
    from draftproof.checkpoint.hub_source import open_hub_source

    return open_hub_source(location)
