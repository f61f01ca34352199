"""Values of stored modules: weights as numbers, whatever they are stored in, and their scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.precision import ModulePrecision, Precision
from draftproof.checkpoint.source import Source
from draftproof.links.element_values import Values, decode, decode_e2m1
from draftproof.links.tensor_sampling import MatrixForm, RowRun, chosen_runs, matrix_form, pieces
from draftproof.links.value_statistics import ValueStatistics, measure, merge

PIECE_BYTES = 4 * 2**20
"""Largest read at a time; the numbers made of it take eight times as much memory at most."""
_WHOLE_SCALE_BYTES = 2**20
_GROUPS = {Precision.NVFP4_MODELOPT: 16, Precision.NVFP4_COMPRESSED: 16, Precision.MXFP4: 32}
_BLOCK_SCALE = "weight_scale"


@dataclass(frozen=True)
class StoredValues:
    """What was read of one stored tensor.

    Attributes:
        entry: the tensor.
        statistics: of its elements as stored.
    """

    entry: TensorEntry
    statistics: ValueStatistics


@dataclass(frozen=True)
class ModuleValues:
    """What was read of one module.

    Attributes:
        stored: the module.
        weight: statistics of its weight: dequantised where that is known, else of the stored elements.
        dequantised: `weight` is in real units, so that magnitudes can be compared.
        scales: its scales, as stored.
        bytes_read: bytes that were read for it.
        complete: every byte of it was read.
    """

    stored: ModulePrecision
    weight: ValueStatistics
    dequantised: bool
    scales: tuple[StoredValues, ...] = field(default=())
    bytes_read: int = 0
    complete: bool = False


def read_module(
    source: Source, stored: ModulePrecision, budget: int | None, most_runs: int = 8
) -> ModuleValues | None:
    """Reads a module's weight and scales, or a sample of their rows.

    Args:
        source: the checkpoint's files.
        stored: the module, with a weight.
        budget: bytes of the weight to stay near; None reads everything.
        most_runs: runs of rows that a sampled weight is read in.

    Returns:
        None when the module has no weight, or one in a dtype that is not known here.

    Raises:
        CheckpointError: a file ends early or cannot be read.
    """
    if stored.weight is None:
        return None
    form = matrix_form(stored.weight)
    runs = chosen_runs(form, budget, most_runs)
    scales = _Scales(source, stored, form.rows)
    parts: list[ValueStatistics] = []
    bytes_read = 0
    for run in runs:
        for piece in pieces(run, form.row_bytes, PIECE_BYTES):
            data = _read_rows(source, stored.weight, form, piece)
            values = _dequantise(stored, data, piece, scales)
            if values is None:
                return None
            bytes_read += len(data)
            parts.append(measure(values))
    read_scales = scales.statistics()
    return ModuleValues(
        stored=stored,
        weight=merge(parts),
        dequantised=scales.usable,
        scales=read_scales,
        bytes_read=bytes_read + scales.bytes_read,
        complete=bytes_read == stored.weight.nbytes,
    )


class _Scales:
    """A module's scales, read once: whole, or with the rows of the weight that are read."""

    def __init__(self, source: Source, stored: ModulePrecision, weight_rows: int) -> None:
        self._source = source
        self._stored = stored
        self._weight_rows = weight_rows
        self._whole: dict[str, Values] = {}
        self._parts: dict[str, list[ValueStatistics]] = {}
        self.bytes_read = 0
        known = stored.precision in _DEQUANTISERS and not stored.problems
        self.usable = known and (stored.precision.is_plain or len(self._shape) <= 2)
        for leaf, entry in _scale_entries(stored).items():
            if entry.nbytes <= _WHOLE_SCALE_BYTES or not self._follows_rows(leaf, entry):
                self._read_whole(leaf, entry)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self._stored.weight.shape if self._stored.weight else ()

    def whole(self, leaf: str) -> Values:
        """All of a scale, flat."""
        return self._whole[leaf]

    def rows(self, leaf: str, run: RowRun) -> Values:
        """The rows of a scale that belong to rows of the weight: float32 [rows, columns]."""
        entry = self._stored.companions[leaf]
        if leaf in self._whole:
            return self._whole[leaf].reshape(self._weight_rows, -1)[run.first : run.first + run.length]
        data = _read_rows(self._source, entry, matrix_form(entry), run)
        self.bytes_read += len(data)
        values = decode(data, _scale_dtype(entry))
        assert values is not None  # the rule that chose the precision checked the dtype
        self._parts.setdefault(leaf, []).append(measure(values))
        return values.reshape(run.length, -1)

    def statistics(self) -> tuple[StoredValues, ...]:
        """What was read of every scale."""
        return tuple(
            StoredValues(entry, merge(self._parts[leaf]))
            for leaf, entry in _scale_entries(self._stored).items()
            if leaf in self._parts
        )

    def _follows_rows(self, leaf: str, entry: TensorEntry) -> bool:
        return leaf == _BLOCK_SCALE and matrix_form(entry).rows == self._weight_rows

    def _read_whole(self, leaf: str, entry: TensorEntry) -> None:
        form = matrix_form(entry)
        data = b"".join(_read_rows(self._source, entry, form, run) for run in chosen_runs(form, None))
        self.bytes_read += len(data)
        values = decode(data, _scale_dtype(entry))
        if values is None or not values.size:
            self.usable = False
            return
        self._whole[leaf] = values
        self._parts[leaf] = [measure(values)]


def _scale_entries(stored: ModulePrecision) -> Mapping[str, TensorEntry]:
    """Scales by the last part of their names; zero points, group indices and shapes are none."""
    return {leaf: entry for leaf, entry in stored.companions.items() if "scale" in leaf}


def _scale_dtype(entry: TensorEntry) -> str:
    """MXFP4 exponents are stored as plain bytes."""
    return "F8_E8M0" if entry.dtype == "U8" else entry.dtype


def _read_rows(source: Source, entry: TensorEntry, form: MatrixForm, run: RowRun) -> bytes:
    return source.read_range(
        entry.file, entry.start + run.first * form.row_bytes, run.length * form.row_bytes
    )


def _dequantise(stored: ModulePrecision, data: bytes, run: RowRun, scales: _Scales) -> Values | None:
    """Real values of some rows; stored elements when the scales are not usable; None for unknown dtypes."""
    assert stored.weight is not None
    if not scales.usable:
        return decode(data, stored.weight.dtype)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _DEQUANTISERS[stored.precision](stored, data, run, scales)


def _plain(stored: ModulePrecision, data: bytes, run: RowRun, scales: _Scales) -> Values | None:
    return decode(data, stored.weight.dtype) if stored.weight else None


def _fp8(stored: ModulePrecision, data: bytes, run: RowRun, scales: _Scales) -> Values | None:
    values = decode(data, stored.weight.dtype) if stored.weight else None
    if values is None:
        return None
    if stored.precision is Precision.FP8_TENSOR:
        return _product(values, scales.whole(_fp8_scale(stored))[:1])
    rows: Values = values.reshape(run.length, -1)
    if stored.precision is Precision.FP8_CHANNEL:
        return _product(rows, scales.rows(_fp8_scale(stored), run))
    height, width = stored.block or (1, 1)
    blocks = scales.whole(_fp8_scale(stored)).reshape(-1, -(-rows.shape[1] // width))
    wanted = (run.first + np.arange(run.length)) // height
    return _product(rows, np.repeat(blocks[wanted], width, axis=1)[:, : rows.shape[1]])


def _fp8_scale(stored: ModulePrecision) -> str:
    return "weight_scale_inv" if "weight_scale_inv" in stored.companions else "weight_scale"


def _four_bits(stored: ModulePrecision, data: bytes, run: RowRun, scales: _Scales) -> Values | None:
    group = _GROUPS[stored.precision]
    values = decode_e2m1(data).reshape(run.length, -1, group)
    scaled = _product(values, scales.rows(_BLOCK_SCALE, run)[:, :, None])
    if stored.precision is Precision.NVFP4_MODELOPT:
        return _product(scaled, scales.whole("weight_scale_2")[:1])
    if stored.precision is Precision.NVFP4_COMPRESSED:
        return _product(scaled, np.reciprocal(scales.whole("weight_global_scale")[:1]))
    return scaled


def _product(values: Values, scales: Values) -> Values:
    return np.asarray(values * scales, np.float32)


_DEQUANTISERS = {
    Precision.BF16: _plain,
    Precision.FP16: _plain,
    Precision.FP32: _plain,
    Precision.FP8_TENSOR: _fp8,
    Precision.FP8_CHANNEL: _fp8,
    Precision.FP8_BLOCK: _fp8,
    Precision.NVFP4_MODELOPT: _four_bits,
    Precision.NVFP4_COMPRESSED: _four_bits,
    Precision.MXFP4: _four_bits,
}
