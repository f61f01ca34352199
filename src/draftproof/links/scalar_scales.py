"""Scales of one number: hundreds of thousands, close together on disk, and each can ruin a matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import ModulePrecision
from draftproof.checkpoint.source import Source
from draftproof.errors import CheckpointError, EnvironmentProblem
from draftproof.links.element_values import decode

LARGEST_GAP = 64 * 2**10
"""Bytes read in vain between two scales rather than reading twice."""
LARGEST_SPAN = 4 * 2**20
_WIDEST = 8


@dataclass(frozen=True)
class ScalarScales:
    """Values of scalar scales.

    Attributes:
        values: by tensor.
        total: scalar scales that there are.
    """

    values: Mapping[TensorEntry, float]
    total: int


@dataclass(frozen=True)
class _Span:
    """Neighbouring scales of one file, read at once."""

    entries: tuple[TensorEntry, ...]

    @property
    def start(self) -> int:
        return self.entries[0].start

    @property
    def length(self) -> int:
        return self.entries[-1].start + self.entries[-1].nbytes - self.start


def read_scalar_scales(
    source: Source, modules: Iterable[ModulePrecision], most_spans: int | None, readers: int
) -> ScalarScales:
    """Reads every scale of one number, or those of places that are spread over the checkpoint.

    Args:
        source: the checkpoint's files.
        modules: whose scales.
        most_spans: places to read; None reads all.
        readers: reads at a time.

    Raises:
        EnvironmentProblem: the hub cannot be reached any more.
    """
    entries = [
        entry
        for stored in modules
        for leaf, entry in stored.companions.items()
        if "scale" in leaf and 0 < entry.nbytes <= _WIDEST and all(size == 1 for size in entry.shape)
    ]

    def read(span: _Span) -> dict[TensorEntry, float]:
        try:
            return _values(span, source.read_range(span.entries[0].file, span.start, span.length))
        except EnvironmentProblem:
            raise
        except CheckpointError:
            # The file is short, which a claim of its own says.
            return {}

    values: dict[TensorEntry, float] = {}
    with ThreadPoolExecutor(max_workers=readers) as pool:
        for found in pool.map(read, _spread(_spans(entries), most_spans)):
            values.update(found)
    return ScalarScales(values, len(entries))


def _spread(spans: Sequence[_Span], most: int | None) -> Sequence[_Span]:
    """Up to `most` of them, from the first to the last."""
    if most is None or len(spans) <= most:
        return spans
    return [spans[number * len(spans) // most] for number in range(most)]


def _spans(entries: Iterable[TensorEntry]) -> list[_Span]:
    spans: list[_Span] = []
    members: list[TensorEntry] = []
    for entry in sorted(entries, key=lambda each: (each.file, each.start)):
        if members and not _fits(members, entry):
            spans.append(_Span(tuple(members)))
            members = []
        members.append(entry)
    return [*spans, _Span(tuple(members))] if members else spans


def _fits(members: list[TensorEntry], entry: TensorEntry) -> bool:
    last = members[-1]
    close = entry.file == last.file and entry.start - (last.start + last.nbytes) <= LARGEST_GAP
    return close and entry.start + entry.nbytes - members[0].start <= LARGEST_SPAN


def _values(span: _Span, data: bytes) -> dict[TensorEntry, float]:
    """All scales of a span, those of one dtype in one go."""
    found: dict[TensorEntry, float] = {}
    raw = np.frombuffer(data, np.uint8)
    by_dtype: dict[tuple[str, int], list[TensorEntry]] = {}
    for entry in span.entries:
        by_dtype.setdefault((entry.dtype, entry.nbytes), []).append(entry)
    for (dtype, width), entries in by_dtype.items():
        starts = np.array([entry.start - span.start for entry in entries])
        values = decode(raw[starts[:, None] + np.arange(width)].tobytes(), dtype)
        if values is not None:
            found.update(zip(entries, values.tolist(), strict=True))
    return found
