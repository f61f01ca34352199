"""What lies in a checkpoint: facts without verdicts, for ``draftproof inspect``."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.evidence.chain import Subject
from draftproof.evidence.item import Location, Note


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
        present: of those, how many are there; all head tensors when `expected` is None.
        tensors: head tensors on disk, scales included.
        size: their bytes.
        layout: how its experts lie: "dense", "per expert", "fused"; empty without tensors.
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


@dataclass(frozen=True)
class Inventory:
    """Everything that ``inspect`` shows.

    Attributes:
        subject: the checkpoint.
        family: label of the family; empty when the architecture is not known.
        model_type: the config's.
        dimensions: label and value of the figures that describe the model, in order of display.
        head: the MTP head.
        layout: how the target's experts lie: "dense", "per expert", "fused"; empty when not known.
        quantization: what the config files say about precision, one line a source.
        groups: tensors by part, module and precision.
        files: number of weight files.
        tensors: number of tensors in them.
        size: their bytes, headers included.
        anomalies: what links 1 and 2 find from config files and headers alone.
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
