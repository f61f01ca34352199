"""``draftproof inspect`` as JSON, with the same versioned schema rules as the chain's report."""

from __future__ import annotations

import math
from typing import Literal

from draftproof.evidence.inventory import FoundTensors, HeadInventory, Inventory, ModuleGroup, TensorFacts
from draftproof.evidence.report_models import (
    SCHEMA_VERSION,
    LocationModel,
    NoteModel,
    ReportModel,
    SubjectModel,
)


class HeadModel(ReportModel):
    """The MTP head."""

    declared_layers: int | None = None
    declared_at: LocationModel | None = None
    expected: int | None = None
    present: int
    tensors: int
    size: int
    layout: str | None = None
    files: tuple[str, ...]

    @classmethod
    def of(cls, head: HeadInventory) -> HeadModel:
        """From facts."""
        return cls(
            declared_layers=head.declared_layers,
            declared_at=LocationModel.of(head.declared_at) if head.declared_at else None,
            expected=head.expected,
            present=head.present,
            tensors=head.tensors,
            size=head.size,
            layout=head.layout or None,
            files=head.files,
        )


class GroupModel(ReportModel):
    """Tensors of one kind of module in one precision; size in bytes."""

    part: str
    module: str
    precision: str
    tensors: int
    size: int

    @classmethod
    def of(cls, group: ModuleGroup) -> GroupModel:
        """From facts."""
        return cls(
            part=group.part,
            module=group.module,
            precision=group.precision,
            tensors=group.tensors,
            size=group.size,
        )


class InventoryModel(ReportModel):
    """The whole answer of ``draftproof inspect``."""

    kind: Literal["inspect"] = "inspect"
    schema_version: Literal["1.1"] = SCHEMA_VERSION
    subject: SubjectModel
    family: str | None = None
    model_type: str | None = None
    dimensions: dict[str, str]
    head: HeadModel
    layout: str | None = None
    quantization: tuple[str, ...]
    groups: tuple[GroupModel, ...]
    files: int
    tensors: int
    size: int
    anomalies: tuple[NoteModel, ...]

    @classmethod
    def of(cls, inventory: Inventory) -> InventoryModel:
        """From facts."""
        return cls(
            subject=SubjectModel.of(inventory.subject),
            family=inventory.family or None,
            model_type=inventory.model_type or None,
            dimensions=dict(inventory.dimensions),
            head=HeadModel.of(inventory.head),
            layout=inventory.layout or None,
            quantization=inventory.quantization,
            groups=tuple(GroupModel.of(group) for group in inventory.groups),
            files=inventory.files,
            tensors=inventory.tensors,
            size=inventory.size,
            anomalies=tuple(NoteModel.of(note) for note in inventory.anomalies),
        )


class TensorModel(ReportModel):
    """One tensor on disk; figures that are no finite number are absent."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    size: int
    values_of: str | None = None
    figures: dict[str, float]

    @classmethod
    def of(cls, tensor: TensorFacts) -> TensorModel:
        """From facts."""
        return cls(
            name=tensor.name,
            dtype=tensor.dtype,
            shape=tensor.shape,
            file=tensor.file,
            start=tensor.start,
            size=tensor.size,
            values_of=tensor.values_of or None,
            figures={name: value for name, value in tensor.figures if math.isfinite(value)},
        )


class TensorsModel(ReportModel):
    """The whole answer of ``draftproof inspect --tensor``."""

    kind: Literal["tensors"] = "tensors"
    schema_version: Literal["1.1"] = SCHEMA_VERSION
    subject: SubjectModel
    part: str
    total: int
    shown: tuple[TensorModel, ...]

    @classmethod
    def of(cls, found: FoundTensors) -> TensorsModel:
        """From facts."""
        return cls(
            subject=SubjectModel.of(found.subject),
            part=found.part,
            total=found.total,
            shown=tuple(TensorModel.of(tensor) for tensor in found.shown),
        )
