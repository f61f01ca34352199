"""What the JSON reports share: places, notes, the subject, the error, and how a model is written.

``schema_version`` is "major.minor": a new optional field raises the minor number, anything that can break a
reader raises the major one.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from draftproof.evidence.chain import Deployment, Subject
from draftproof.evidence.item import Location, Note

SCHEMA_VERSION: Literal["1.1"] = "1.1"

VerdictWord = Literal["proven", "disproved", "unknown"]


class ReportModel(BaseModel):
    """Base of everything that is written: no field that the schema does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LocationModel(ReportModel):
    """Where something was observed; fields that do not apply are absent."""

    file: str | None = None
    field: str | None = None
    tensor: str | None = None
    line: int | None = None
    metric: str | None = None

    @classmethod
    def of(cls, location: Location) -> LocationModel:
        """From evidence."""
        return cls(
            file=location.file or None,
            field=location.field or None,
            tensor=location.tensor or None,
            line=location.line,
            metric=location.metric or None,
        )


class NoteModel(ReportModel):
    """A finding that does not decide the claim."""

    severity: Literal["info", "warn"]
    text: str
    where: tuple[LocationModel, ...] = ()
    command: str | None = None

    @classmethod
    def of(cls, note: Note) -> NoteModel:
        """From evidence."""
        return cls(
            severity=note.severity.value,
            text=note.text,
            where=places(note.where),
            command=note.command or None,
        )


class DeploymentModel(ReportModel):
    """Stack and GPUs; fields that nobody named are absent. Since schema 1.1."""

    stack: str | None = None
    version: str | None = None
    origin: str | None = None
    gpu: str | None = None
    tensor_parallel: int

    @classmethod
    def of(cls, deployment: Deployment) -> DeploymentModel:
        """From evidence."""
        return cls(
            stack=deployment.stack or None,
            version=deployment.version or None,
            origin=deployment.origin or None,
            gpu=deployment.gpu or None,
            tensor_parallel=deployment.tensor_parallel,
        )


class SubjectModel(ReportModel):
    """The checkpoint, and where it is to be served."""

    name: str
    location: str
    architecture: str | None = None
    revision: str | None = None
    deployment: DeploymentModel | None = None

    @classmethod
    def of(cls, subject: Subject) -> SubjectModel:
        """From evidence."""
        return cls(
            name=subject.name,
            location=subject.location,
            architecture=subject.architecture or None,
            revision=subject.revision or None,
            deployment=DeploymentModel.of(subject.deployment) if subject.deployment else None,
        )


class ErrorModel(ReportModel):
    """What any command prints under ``--json`` when it cannot give a report."""

    kind: Literal["error"] = "error"
    schema_version: Literal["1.1"] = SCHEMA_VERSION
    error: str
    message: str
    remedy: str | None = None
    exit_code: int


def render_json(model: BaseModel) -> str:
    """Indented JSON without absent fields that default to nothing, ending with a newline."""
    return model.model_dump_json(indent=2, exclude_none=True) + "\n"


def places(where: tuple[Location, ...]) -> tuple[LocationModel, ...]:
    """Places as they are written."""
    return tuple(LocationModel.of(location) for location in where)
