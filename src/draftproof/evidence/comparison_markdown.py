"""Several chains side by side as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from draftproof.evidence.comparison import Agreement, Cell, ComparisonReport, ComparisonRow
from draftproof.evidence.markdown import code, escaped, verdict_words
from draftproof.evidence.quantities import count_text, shortened

_REASON_LENGTH = 160


def comparison_to_markdown(report: ComparisonReport) -> str:
    """The table, and what the chains do not prove, ending with a newline."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ComparisonReport) -> Iterator[str]:
    first = report.chains[0]
    yield f"# draftproof verify: {code(first.subject.name)} in {count_text(len(report.chains), 'stack')}"
    yield ""
    yield f"**{verdict_words(report.verdict)}** {escaped(report.summary)}"
    yield ""
    yield from _table(report, report.link_rows)
    different = [row for row in report.claim_rows if row.agreement is Agreement.DIFFERENT]
    same = [row for row in report.claim_rows if row.agreement is Agreement.SAME]
    if different:
        yield from ("", "## What differs", "")
        yield from _table(report, different)
    failing = [row for row in same if not row.holds_everywhere]
    if failing:
        yield from ("", "## What fails or is open wherever it is asked", "")
        yield from _table(report, failing)
    holding = len(same) - len(failing)
    if holding:
        yield from ("", f"{count_text(holding, 'claim')} more: proven in every stack that makes them.")
    yield from ("", "## Why", "")
    for label, chain in zip(report.labels, report.chains, strict=True):
        yield f"- {escaped(label)}: {verdict_words(chain.verdict)}, {escaped(chain.summary)}"
    clauses = dict.fromkeys(clause for chain in report.chains for clause in chain.does_not_prove)
    yield from ("", "## What this report does not prove", "")
    yield from (f"- {escaped(clause)}" for clause in clauses)
    yield ""
    parts = [f"draftproof {first.version}", first.started_at, code(" ".join(first.arguments))]
    yield "*" + " · ".join(parts) + "*"


def _table(report: ComparisonReport, rows: Iterable[ComparisonRow]) -> Iterator[str]:
    yield "| | " + " | ".join(escaped(label) for label in report.labels) + " |"
    yield "| --- |" + " --- |" * len(report.labels)
    for row in rows:
        name = f"{row.link.number} {row.link.value}" + (f": {escaped(row.title)}" if row.check else "")
        yield f"| {name} | " + " | ".join(_cell(cell) for cell in row.cells) + " |"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "not asked"
    reason = f" {escaped(shortened(cell.reason, _REASON_LENGTH))}" if cell.reason else ""
    after = "" if cell.counts else " (does not count)"
    return f"{verdict_words(cell.verdict)}{after}{reason}"
