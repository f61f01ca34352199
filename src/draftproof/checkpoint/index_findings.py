"""Where the index and the files that it names disagree."""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.checkpoint.file_findings import FileReading
from draftproof.checkpoint.finding import Finding, FindingKind, shown_names
from draftproof.checkpoint.index import ShardIndex


def index_findings(
    index: ShardIndex,
    loaded: Mapping[str, FileReading],
    readings: Mapping[str, FileReading],
    refused: Mapping[str, str],
) -> list[Finding]:
    """Compares an index with the files.

    Args:
        index: well-formed.
        loaded: readings of the files that the index names and that are there.
        readings: readings of all files.
        refused: files that are there and are not read, with the reason.
    """
    findings: list[Finding] = []
    if readings and not loaded:
        message = f"{index.file} names none of the {len(readings)} weight files that are there"
        findings.append(Finding(FindingKind.STALE_INDEX, index.file, message))
    promised: dict[str, set[str]] = {shard: set() for shard in index.shards}
    for name, shard in index.weight_map.items():
        promised[shard].add(name)
    for shard in index.shards:
        if shard not in readings:
            names = tuple(sorted(promised[shard]))
            state = f"not read: {refused[shard]}" if shard in refused else "not there"
            message = (
                f"{index.file} names {shard}, which is {state} ({len(names)} tensors: {shown_names(names)})"
            )
            findings.append(Finding(FindingKind.MISSING_SHARD, shard, message, names))
    holder, again = _holders(loaded)
    for shard, reading in loaded.items():
        # A file without a usable header has said so already.
        if reading.header is not None:
            findings.extend(_shard_findings(index, reading, promised[shard], holder))
            findings.extend(_repeated(shard, again.get(shard, []), holder))
    findings.extend(_total_size(index, loaded, len(promised)))
    return findings


def _holders(loaded: Mapping[str, FileReading]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Every tensor name with the first file that holds it; every file with the names that it repeats."""
    first: dict[str, str] = {}
    again: dict[str, list[str]] = {}
    for file, reading in loaded.items():
        for entry in reading.tensors:
            if first.setdefault(entry.name, file) is not file:
                again.setdefault(file, []).append(entry.name)
    return first, again


def _repeated(file: str, names: list[str], holder: Mapping[str, str]) -> list[Finding]:
    if not names:
        return []
    twice = tuple(sorted(names))
    message = f"{shown_names(twice)} lies both in {holder[twice[0]]} and in {file}"
    return [Finding(FindingKind.DUPLICATE_TENSOR, file, message, twice)]


def _shard_findings(
    index: ShardIndex, reading: FileReading, promised: set[str], holder: Mapping[str, str]
) -> list[Finding]:
    file = reading.file
    held = {entry.name for entry in reading.tensors}
    absent = tuple(sorted(name for name in promised - held if name not in holder))
    elsewhere = tuple(sorted(name for name in promised - held if name in holder))
    unnamed = tuple(sorted(name for name in held - promised if name not in index.weight_map))
    findings = []
    if absent:
        message = f"{index.file} promises {shown_names(absent)} in {file}, which does not hold them"
        findings.append(Finding(FindingKind.TENSOR_NOT_IN_SHARD, file, message, absent))
    if elsewhere:
        message = (
            f"{index.file} promises {shown_names(elsewhere)} in {file}, but {holder[elsewhere[0]]} holds them"
        )
        findings.append(Finding(FindingKind.TENSOR_IN_OTHER_SHARD, file, message, elsewhere))
    if unnamed:
        message = f"{file} holds {shown_names(unnamed)}, which {index.file} does not name"
        findings.append(Finding(FindingKind.TENSOR_NOT_IN_INDEX, file, message, unnamed))
    return findings


def _total_size(index: ShardIndex, loaded: Mapping[str, FileReading], shards: int) -> list[Finding]:
    """Compared only when every file could be read: anything else has its own finding."""
    if index.total_size is None or len(loaded) < shards or any(r.header is None for r in loaded.values()):
        return []
    total = sum(reading.header.data_bytes for reading in loaded.values() if reading.header)
    if total == index.total_size:
        return []
    message = f"{index.file} claims {index.total_size} bytes of tensors, the files hold {total}"
    return [Finding(FindingKind.TOTAL_SIZE_MISMATCH, index.file, message)]
