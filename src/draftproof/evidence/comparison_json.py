"""Several chains side by side as JSON: every chain whole, and the table that compares them."""

from __future__ import annotations

from typing import Literal

from draftproof.evidence.comparison import Cell, ComparisonReport, ComparisonRow
from draftproof.evidence.json_report import ChainModel
from draftproof.evidence.report_models import SCHEMA_VERSION, ReportModel, VerdictWord, render_json


class CellModel(ReportModel):
    """What one chain says; `counts` is false after a broken link of that chain."""

    verdict: VerdictWord
    reason: str | None = None
    counts: bool

    @classmethod
    def of(cls, cell: Cell) -> CellModel:
        """From evidence."""
        return cls(verdict=cell.verdict.value, reason=cell.reason or None, counts=cell.counts)


class RowModel(ReportModel):
    """A link (`check` is absent) or one of its claims in every chain; null where a chain does not make it."""

    link: str
    check: str | None = None
    title: str
    agreement: Literal["different", "same"]
    cells: tuple[CellModel | None, ...]

    @classmethod
    def of(cls, row: ComparisonRow) -> RowModel:
        """From evidence."""
        return cls(
            link=row.link.value,
            check=row.check or None,
            title=row.title,
            agreement=row.agreement.value,
            cells=tuple(CellModel.of(cell) if cell else None for cell in row.cells),
        )


class ComparisonModel(ReportModel):
    """The report of ``draftproof verify`` with several stacks."""

    kind: Literal["comparison"] = "comparison"
    schema_version: Literal["1.1"] = SCHEMA_VERSION
    verdict: VerdictWord
    exit_code: int
    summary: str
    columns: tuple[str, ...]
    links: tuple[RowModel, ...]
    claims: tuple[RowModel, ...]
    chains: tuple[ChainModel, ...]

    @classmethod
    def of(cls, report: ComparisonReport) -> ComparisonModel:
        """From evidence."""
        return cls(
            verdict=report.verdict.value,
            exit_code=report.exit_code,
            summary=report.summary,
            columns=report.labels,
            links=tuple(RowModel.of(row) for row in report.link_rows),
            claims=tuple(RowModel.of(row) for row in report.claim_rows),
            chains=tuple(ChainModel.of(chain) for chain in report.chains),
        )


def comparison_to_json(report: ComparisonReport) -> str:
    """The whole report, ending with a newline."""
    return render_json(ComparisonModel.of(report))
