"""The tensors that a load would read, and everything that is wrong with the files of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from draftproof.checkpoint.alike import AlikeTensors, gather_alike
from draftproof.checkpoint.file_findings import FileReading, file_findings
from draftproof.checkpoint.finding import Finding, FindingKind
from draftproof.checkpoint.header import TensorEntry, read_header
from draftproof.checkpoint.index import INDEX_FILE, ShardIndex, read_index
from draftproof.checkpoint.index_findings import index_findings
from draftproof.checkpoint.paused_collection import paused_collection
from draftproof.checkpoint.selection import missing_of_series, selected_without_index, stray_findings
from draftproof.checkpoint.source import Source
from draftproof.errors import CheckpointError, EnvironmentProblem

_OTHER_FORMATS = (".bin", ".pt", ".pth", ".gguf", ".npz")

FileWatcher = Callable[[int, int], None]
"""Called with the number of files read so far and the number of all; from several threads."""


class FileRole(Enum):
    """Whether a load reads a file."""

    LOADED = "loaded"
    UNINDEXED = "unindexed"


@dataclass(frozen=True)
class WeightFile:
    """One safetensors file.

    Attributes:
        name: relative name.
        size: bytes.
        role: whether a load reads it.
        tensor_count: tensors in its header; 0 when it is broken.
        tensor_bytes: size of their data by the header.
        metadata: `__metadata__`.
    """

    name: str
    size: int
    role: FileRole
    tensor_count: int
    tensor_bytes: int
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class Inventory:
    """All tensors and files.

    Attributes:
        tensors: what a load reads, by name: those that the index names where it says; without an index,
            those of model.safetensors or of the numbered files.
        unindexed: tensors that are there and would not be read, stray files' included.
        index: the index; None when there is none or it is broken.
        files: every safetensors file, sorted by name.
        findings: what is wrong.
    """

    tensors: Mapping[str, TensorEntry]
    unindexed: tuple[TensorEntry, ...]
    index: ShardIndex | None
    files: tuple[WeightFile, ...]
    findings: tuple[Finding, ...]

    @property
    def total_bytes(self) -> int:
        """Size of all tensors that a load reads."""
        return sum(entry.nbytes for entry in self.tensors.values())

    @cached_property
    def alike(self) -> tuple[AlikeTensors, ...]:
        """All tensors that a load reads, those that are alike together; gathered once."""
        return gather_alike(self.tensors.values())


def nobody(done: int, total: int) -> None:
    """Watches nothing."""


@paused_collection()
def take_inventory(source: Source, watcher: FileWatcher = nobody) -> Inventory:
    """Reads the index and the header of every weight file, and compares them.

    Never raises on broken files: they become findings, the others are still read.

    Args:
        source: the checkpoint's files.
        watcher: is told how many files have been read.

    Raises:
        EnvironmentProblem: the hub cannot be reached.
    """
    findings = _refused(source)
    index = _index(source, findings)
    names = tuple(sorted(_weight_names(source)))
    if not names:
        findings.append(_no_weights(source))
    readings = _read_all(source, names, watcher)
    loaded = set(index.shards) & readings.keys() if index else set(selected_without_index(names))
    for reading in readings.values():
        findings.extend(file_findings(reading))
    in_loaded = {name: readings[name] for name in sorted(loaded)}
    if index is not None:
        findings.extend(index_findings(index, in_loaded, readings, source.refused))
        tensors = _indexed(index, in_loaded)
    else:
        findings.extend(missing_of_series(names))
        findings.extend(_duplicates(in_loaded))
        tensors = _first_of_each(in_loaded)
    strays = tuple(readings[name] for name in names if name not in loaded)
    findings.extend(stray_findings(strays, index, loaded, tensors))
    return Inventory(
        tensors,
        tuple(
            entry
            for reading in readings.values()
            for entry in reading.tensors
            if tensors.get(entry.name) is not entry
        ),
        index,
        tuple(_weight_file(reading, loaded) for reading in readings.values()),
        tuple(findings),
    )


def _refused(source: Source) -> list[Finding]:
    kind = FindingKind.REFUSED_FILE
    return [
        Finding(kind, name, f"{name} is not read: {reason}")
        for name, reason in sorted(source.refused.items())
    ]


def _index(source: Source, findings: list[Finding]) -> ShardIndex | None:
    if INDEX_FILE not in source.list_files():
        return None
    try:
        return read_index(source)
    except CheckpointError as error:
        findings.append(Finding(FindingKind.BROKEN_INDEX, INDEX_FILE, error.message))
        return None


def _weight_names(source: Source) -> list[str]:
    """Weight files of this checkpoint: not those of a model of its own in a sub-folder with a config.json."""
    files = source.list_files()
    own_models = {name.rpartition("/")[0] for name in files if name.endswith("/config.json")}
    return [
        name
        for name in files
        if name.endswith(".safetensors") and not any(name.startswith(f"{folder}/") for folder in own_models)
    ]


def _no_weights(source: Source) -> Finding:
    others = sorted(name for name in source.list_files() if name.endswith(_OTHER_FORMATS))
    if others:
        return Finding(
            FindingKind.OTHER_FORMAT,
            others[0],
            f"weights are there only in another format ({others[0]}), and draftproof reads safetensors",
        )
    return Finding(FindingKind.NO_WEIGHTS, source.label, f"{source.label} holds no weight files")


def _read_all(source: Source, names: tuple[str, ...], watcher: FileWatcher) -> dict[str, FileReading]:
    sizes = source.list_files()

    def read(name: str) -> FileReading:
        try:
            return FileReading(name, sizes[name], read_header(source, name), None)
        except EnvironmentProblem:
            raise
        except CheckpointError as error:
            return FileReading(name, sizes[name], None, error.message)

    readings: dict[str, FileReading] = {}
    with ThreadPoolExecutor(max_workers=source.concurrent_reads) as pool:
        for reading in pool.map(read, names):
            readings[reading.file] = reading
            watcher(len(readings), len(names))
    return readings


def _indexed(index: ShardIndex, loaded: Mapping[str, FileReading]) -> dict[str, TensorEntry]:
    weight_map = index.weight_map
    return {
        entry.name: entry
        for file, reading in loaded.items()
        for entry in reading.tensors
        if weight_map.get(entry.name) == file
    }


def _first_of_each(loaded: Mapping[str, FileReading]) -> dict[str, TensorEntry]:
    tensors: dict[str, TensorEntry] = {}
    for reading in loaded.values():
        for entry in reading.tensors:
            tensors.setdefault(entry.name, entry)
    return tensors


def _duplicates(loaded: Mapping[str, FileReading]) -> list[Finding]:
    """Names in two files that are both read, without an index to choose."""
    first: dict[str, str] = {}
    twice: dict[tuple[str, str], list[str]] = {}
    for file, reading in loaded.items():
        for entry in reading.tensors:
            if first.setdefault(entry.name, file) != file:
                twice.setdefault((first[entry.name], file), []).append(entry.name)
    return [
        Finding(
            FindingKind.DUPLICATE_TENSOR, file, f"{names[0]} lies both in {other} and in {file}", tuple(names)
        )
        for (other, file), names in twice.items()
    ]


def _weight_file(reading: FileReading, loaded: set[str]) -> WeightFile:
    header = reading.header
    return WeightFile(
        reading.file,
        reading.size,
        FileRole.LOADED if reading.file in loaded else FileRole.UNINDEXED,
        len(reading.tensors),
        header.data_bytes if header else 0,
        header.metadata if header else {},
    )
