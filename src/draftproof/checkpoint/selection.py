"""Which weight files belong to the checkpoint when no index says so, and what the others are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from draftproof.checkpoint.file_findings import FileReading
from draftproof.checkpoint.finding import Finding, FindingKind, shown_names
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.index import ShardIndex

SINGLE_FILE = "model.safetensors"
MAX_SERIES = 100_000

_SERIES = re.compile(r"(?P<stem>.+)-(?P<number>\d{1,6})-of-(?P<total>\d{1,6})\.safetensors")
_MTP_TENSOR = re.compile(r"(?:^|\.)mtp(?:_[a-z_]+)?\.|\.nextn\.")
_SIDE_FILE = re.compile(r"mtp|extra_tensors|adapter_model|consolidated", re.IGNORECASE)


def looks_like_mtp(tensor: str) -> bool:
    """A tensor name that says by itself that it belongs to an MTP head (many families' names do not)."""
    return _MTP_TENSOR.search(tensor) is not None


def selected_without_index(names: Sequence[str]) -> tuple[str, ...]:
    """The files that a load without an index reads.

    model.safetensors alone if it is there, else all numbered files of the checkpoint's own folder, else
    every file there that is not a side file by its name.
    """
    own = [name for name in names if "/" not in name]
    if SINGLE_FILE in own:
        return (SINGLE_FILE,)
    numbered = tuple(name for name in own if _SERIES.fullmatch(name))
    return numbered or tuple(name for name in own if not _SIDE_FILE.search(name)) or tuple(own)


def missing_of_series(names: Sequence[str]) -> list[Finding]:
    """Gaps in numbered files (`-00001-of-00003`), for checkpoints without an index."""
    if SINGLE_FILE in names:
        return []
    series: dict[tuple[str, str], set[int]] = {}
    for name in names:
        if match := _SERIES.fullmatch(name):
            series.setdefault((match["stem"], match["total"]), set()).add(int(match["number"]))
    findings = []
    for (stem, total), numbers in series.items():
        if int(total) > MAX_SERIES:
            continue
        for number in sorted(set(range(1, int(total) + 1)) - numbers):
            file = f"{stem}-{number:0{len(total)}d}-of-{total}.safetensors"
            message = f"{file} is not there, and the numbering of the others promises {int(total)} files"
            findings.append(Finding(FindingKind.MISSING_SHARD, file, message))
    return findings


def stray_findings(
    strays: Sequence[FileReading],
    index: ShardIndex | None,
    loaded: set[str],
    tensors: Mapping[str, TensorEntry],
) -> list[Finding]:
    """One finding for every weight file that a load would not read.

    Args:
        strays: readings of those files.
        index: the index, if there is a usable one.
        loaded: files that a load reads.
        tensors: tensors that a load reads.
    """
    promised = _promised_elsewhere(index, loaded)
    return [_stray(reading, promised, tensors) for reading in strays if reading.header is not None]


def _promised_elsewhere(index: ShardIndex | None, loaded: set[str]) -> dict[frozenset[str], str]:
    """Tensors that the index expects in files that are not there -> the file's name."""
    promised: dict[str, list[str]] = {}
    for name, shard in index.weight_map.items() if index else ():
        if shard not in loaded:
            promised.setdefault(shard, []).append(name)
    return {frozenset(names): shard for shard, names in promised.items()}


def _stray(
    reading: FileReading, promised: Mapping[frozenset[str], str], tensors: Mapping[str, TensorEntry]
) -> Finding:
    file = reading.file
    names = tuple(sorted(entry.name for entry in reading.tensors))
    expected = promised.get(frozenset(names))
    if expected is not None:
        message = f"{file} holds exactly what the index expects in {expected}: it was renamed"
        return Finding(FindingKind.RENAMED_SHARD, file, message, names)
    again = sum(name in tensors for name in names)
    detail = f"{shown_names(names)}" + (f"; {again} of them are also in files that are read" if again else "")
    heads = sum(map(looks_like_mtp, names))
    if heads or "mtp" in file.lower():
        message = f"{file} holds {heads or len(names)} MTP tensors and no load reads it ({detail})"
        return Finding(FindingKind.UNINDEXED_MTP_FILE, file, message, names)
    return Finding(FindingKind.UNINDEXED_FILE, file, f"no load reads {file} ({detail})", names)
