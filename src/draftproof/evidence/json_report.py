"""A report as JSON with a versioned schema.

``schema_version`` is "major.minor": a new optional field raises the minor number, anything that can break a
reader raises the major one. The JSON Schema files under ``docs/schemas`` are written by
``python -m draftproof.evidence.json_report DIRECTORY`` and compared by a test.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.item import EvidenceItem, Location, Note

SCHEMA_VERSION: Literal["1.0"] = "1.0"

VerdictWord = Literal["proven", "disproved", "unknown"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LocationModel(_Model):
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


class NoteModel(_Model):
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
            where=_places(note.where),
            command=note.command or None,
        )


class ItemModel(_Model):
    """One claim and what was observed about it."""

    check: str
    claim: str
    verdict: VerdictWord
    expected: str
    observed: str
    reason: str | None = None
    where: tuple[LocationModel, ...] = ()
    command: str | None = None
    notes: tuple[NoteModel, ...] = ()

    @classmethod
    def of(cls, item: EvidenceItem) -> ItemModel:
        """From evidence."""
        return cls(
            check=item.check,
            claim=item.claim,
            verdict=item.verdict.value,
            expected=item.expected,
            observed=item.observed,
            reason=item.reason or None,
            where=_places(item.where),
            command=item.command or None,
            notes=tuple(NoteModel.of(note) for note in item.notes),
        )


class LinkModel(_Model):
    """One link of the chain."""

    number: int
    link: str
    holds_when: str
    verdict: VerdictWord
    counts: bool
    summary: str
    seconds: float
    items: tuple[ItemModel, ...]
    warnings: tuple[NoteModel, ...]

    @classmethod
    def of(cls, report: LinkReport, counts: bool) -> LinkModel:
        """From evidence; `counts` is false after a broken link."""
        return cls(
            number=report.link.number,
            link=report.link.value,
            holds_when=report.link.definition.holds_when,
            verdict=report.verdict.value,
            counts=counts,
            summary=report.summary,
            seconds=round(report.seconds, 3),
            items=tuple(ItemModel.of(item) for item in report.items),
            warnings=tuple(NoteModel.of(note) for note in report.warnings),
        )


class SubjectModel(_Model):
    """The checkpoint."""

    name: str
    location: str
    architecture: str | None = None
    revision: str | None = None


class ChainModel(_Model):
    """The whole report of ``draftproof verify``."""

    kind: Literal["verify"] = "verify"
    schema_version: Literal["1.0"] = SCHEMA_VERSION
    draftproof_version: str
    started_at: str
    arguments: tuple[str, ...]
    subject: SubjectModel
    verdict: VerdictWord
    exit_code: int
    summary: str
    broken_at: str | None = None
    links: tuple[LinkModel, ...]
    not_run: tuple[str, ...]
    does_not_prove: tuple[str, ...]

    @classmethod
    def of(cls, chain: ChainReport) -> ChainModel:
        """From evidence."""
        broken = chain.broken_at
        subject = chain.subject
        return cls(
            draftproof_version=chain.version,
            started_at=chain.started_at,
            arguments=chain.arguments,
            subject=SubjectModel(
                name=subject.name,
                location=subject.location,
                architecture=subject.architecture or None,
                revision=subject.revision or None,
            ),
            verdict=chain.verdict.value,
            exit_code=chain.exit_code,
            summary=chain.summary,
            broken_at=None if broken is None else broken.link.value,
            links=tuple(LinkModel.of(report, chain.counts(report)) for report in chain.links),
            not_run=tuple(link.value for link in chain.not_run),
            does_not_prove=chain.does_not_prove,
        )


class ErrorModel(_Model):
    """What any command prints under ``--json`` when it cannot give a report."""

    kind: Literal["error"] = "error"
    schema_version: Literal["1.0"] = SCHEMA_VERSION
    error: str
    message: str
    remedy: str | None = None
    exit_code: int


def to_json(chain: ChainReport) -> str:
    """The whole report of ``draftproof verify``, ending with a newline."""
    return render_json(ChainModel.of(chain))


def render_json(model: BaseModel) -> str:
    """Indented JSON without absent fields that default to nothing, ending with a newline."""
    return model.model_dump_json(indent=2, exclude_none=True) + "\n"


def schema_text(model: type[BaseModel]) -> str:
    """The JSON Schema of a report, ending with a newline."""
    return json.dumps(model.model_json_schema(), indent=2) + "\n"


SCHEMAS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("verify.schema.json", ChainModel),
    ("error.schema.json", ErrorModel),
)
"""File name and model of every published schema."""


def write_schemas(directory: Path) -> None:
    """Writes every published schema into a folder, which is made when it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, model in SCHEMAS:
        (directory / name).write_text(schema_text(model), encoding="utf-8")


def _places(where: tuple[Location, ...]) -> tuple[LocationModel, ...]:
    return tuple(LocationModel.of(location) for location in where)


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
