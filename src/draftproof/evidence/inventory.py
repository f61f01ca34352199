"""What lies in a checkpoint: facts without verdicts, for ``draftproof inspect``; all text is printable."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.evidence.chain import Subject
from draftproof.evidence.item import Location, Note
from draftproof.evidence.printable import make_printable


@dataclass(frozen=True)
class ModuleGroup:
    """Tensors of one kind of module that are stored in one precision.

    Attributes:
        part: "target", "head", "vision" or "other".
        module: kind of module: "routed experts", "attention", "norms", ...
        precision: how it is stored: "BF16", "NVFP4 (ModelOpt)", "FP8 block 128x128", ...
        tensors: tensors on disk, scales included.
        size: their bytes.
    """

    part: str
    module: str
    precision: str
    tensors: int
    size: int


@dataclass(frozen=True)
class HeadInventory:
    """The MTP head.

    Attributes:
        declared_layers: layers that the config declares; None when it is silent.
        declared_at: where it does; None when it is silent.
        expected: tensors that the architecture requires in the layout on disk, scales left out; None when
            that is not known for the family.
        present: of those, how many are there; all tensors of the head when `expected` is None.
        tensors: head tensors on disk, scales included.
        size: their bytes.
        layout: how its experts lie, in words; empty when it is not known.
        files: names of the files that hold it.
    """

    declared_layers: int | None
    declared_at: Location | None
    expected: int | None
    present: int
    tensors: int
    size: int
    layout: str
    files: tuple[str, ...]

    def __post_init__(self) -> None:
        make_printable(self, "layout", "files")


@dataclass(frozen=True)
class TensorFacts:
    """One tensor on disk.

    Attributes:
        name: full name.
        dtype: as stored.
        shape: as stored.
        file: where it lies.
        start: first byte, counted from the beginning of the file.
        size: bytes.
        values_of: what the figures are about: "all values", "a sample of 131,072 values", with "dequantised"
            where scales were applied; empty when values were not read.
        figures: name and value of each figure ("mean", "RMS", ...), in order of display.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    size: int
    values_of: str = ""
    figures: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        make_printable(self, "name", "file", "values_of")


@dataclass(frozen=True)
class FoundTensors:
    """Tensors whose names hold a part.

    Attributes:
        subject: the checkpoint.
        part: what was looked for.
        total: how many names hold it.
        shown: the first of them.
    """

    subject: Subject
    part: str
    total: int
    shown: tuple[TensorFacts, ...]

    def __post_init__(self) -> None:
        make_printable(self, "part")


@dataclass(frozen=True)
class Inventory:
    """Everything that ``inspect`` shows.

    Attributes:
        subject: the checkpoint.
        family: label of the family; empty when the architecture is not known.
        model_type: the config's.
        dimensions: label and value of the figures that describe the model, in order of display.
        head: the MTP head.
        layout: how the target's experts lie, in words; empty when it is not known.
        quantization: what the config files say about precision, one line a source.
        groups: tensors by part, module and precision.
        files: number of weight files.
        tensors: number of tensors in them.
        size: their bytes, headers included.
        anomalies: what links 1 and 2 find wrong from config files and headers alone.
    """

    subject: Subject
    family: str
    model_type: str
    dimensions: tuple[tuple[str, str], ...]
    head: HeadInventory
    layout: str
    quantization: tuple[str, ...]
    groups: tuple[ModuleGroup, ...]
    files: int
    tensors: int
    size: int
    anomalies: tuple[Note, ...]

    def __post_init__(self) -> None:
        make_printable(self, "family", "model_type", "layout", "quantization")
