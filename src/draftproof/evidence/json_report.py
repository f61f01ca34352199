"""The chain as JSON with a versioned schema (`report_models` says what a version promises)."""

from __future__ import annotations

from typing import Literal

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.item import EvidenceItem, EvidenceTable
from draftproof.evidence.report_models import (
    SCHEMA_VERSION,
    LocationModel,
    NoteModel,
    ReportModel,
    SubjectModel,
    VerdictWord,
    places,
    render_json,
)


class TableModel(ReportModel):
    """Figures in rows and columns. Since schema 1.1."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, table: EvidenceTable) -> TableModel:
        """From evidence."""
        return cls(title=table.title, head=table.head, rows=table.rows)


class ItemModel(ReportModel):
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
    tables: tuple[TableModel, ...] = ()

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
            where=places(item.where),
            command=item.command or None,
            notes=tuple(NoteModel.of(note) for note in item.notes),
            tables=tuple(TableModel.of(table) for table in item.tables),
        )


class LinkModel(ReportModel):
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


class ChainModel(ReportModel):
    """The whole report of ``draftproof verify``."""

    kind: Literal["verify"] = "verify"
    schema_version: Literal["1.1"] = SCHEMA_VERSION
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
        return cls(
            draftproof_version=chain.version,
            started_at=chain.started_at,
            arguments=chain.arguments,
            subject=SubjectModel.of(chain.subject),
            verdict=chain.verdict.value,
            exit_code=chain.exit_code,
            summary=chain.summary,
            broken_at=None if broken is None else broken.link.value,
            links=tuple(LinkModel.of(report, chain.counts(report)) for report in chain.links),
            not_run=tuple(link.value for link in chain.not_run),
            does_not_prove=chain.does_not_prove,
        )


def to_json(chain: ChainReport) -> str:
    """The whole report of ``draftproof verify``, ending with a newline."""
    return render_json(ChainModel.of(chain))
