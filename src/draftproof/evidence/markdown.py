"""A report as Markdown: for pull requests, issues and job summaries."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.item import EvidenceItem, EvidenceTable, Severity
from draftproof.evidence.verdict import Verdict

_SYMBOLS = {Verdict.PROVEN: "✅", Verdict.DISPROVED: "❌", Verdict.UNKNOWN: "❔"}
_PLACES_SHOWN = 10


def to_markdown(chain: ChainReport) -> str:
    """The whole report, ending with a newline."""
    return "\n".join(_lines(chain)) + "\n"


def _lines(chain: ChainReport) -> Iterator[str]:
    subject = chain.subject
    deployment = f" in {escaped(subject.deployment.label)}" if subject.deployment else ""
    yield f"# draftproof verify: {code(subject.name)}{deployment}"
    yield ""
    yield f"**{verdict_words(chain.verdict)}** {escaped(chain.summary)}"
    yield ""
    yield "| link | verdict | claims | warnings | seconds |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for report in chain.links:
        note = "" if chain.counts(report) else " (does not count: an earlier link is broken)"
        yield (
            f"| {report.link.number} {report.link.value} | {verdict_words(report.verdict)}{note} "
            f"| {len(report.items)} | {len(report.warnings)} | {report.seconds:.2f} |"
        )
    for report in chain.links:
        yield ""
        yield from _link(report)
    if chain.does_not_prove:
        yield ""
        yield "## What this report does not prove"
        yield ""
        yield from (f"- {escaped(clause)}" for clause in chain.does_not_prove)
    if chain.not_run:
        yield ""
        yield "## Links that were not run"
        yield ""
        for link in chain.not_run:
            yield f"- {link.number} {link.value}: {link.definition.holds_when}"
    yield ""
    yield _provenance(chain)


def _link(report: LinkReport) -> Iterator[str]:
    yield f"## {report.link.number} {report.link.value}: {verdict_words(report.verdict)}"
    yield ""
    yield escaped(report.link.definition.holds_when)
    for item in report.items:
        yield ""
        yield from _item(item)


def _item(item: EvidenceItem) -> Iterator[str]:
    yield f"### {verdict_words(item.verdict)} {escaped(item.claim)}"
    yield ""
    yield f"- check: {code(item.check)}"
    yield f"- expected: {escaped(item.expected)}"
    yield f"- observed: {escaped(item.observed)}"
    if item.reason:
        yield f"- reason: {escaped(item.reason)}"
    if item.where:
        places = ", ".join(code(str(location)) for location in item.where[:_PLACES_SHOWN])
        rest = len(item.where) - _PLACES_SHOWN
        yield f"- where: {places}" + (f", and {rest} more" if rest > 0 else "")
    for note in item.notes:
        label = "**WARN**" if note.severity is Severity.WARN else "note"
        yield f"- {label}: {escaped(note.text)}" + (f" See {code(note.command)}" if note.command else "")
    for table in item.tables:
        yield from _table(table)
    if item.command:
        yield ""
        yield "```sh"
        yield item.command
        yield "```"


def _table(table: EvidenceTable) -> Iterator[str]:
    yield from ("", f"{escaped(table.title)}:", "")
    yield "| " + " | ".join(map(escaped, table.head)) + " |"
    yield "|" + " --- |" * len(table.head)
    yield from ("| " + " | ".join(map(escaped, row)) + " |" for row in table.rows)


def _provenance(chain: ChainReport) -> str:
    parts = [f"draftproof {chain.version}", chain.started_at]
    if chain.subject.deployment and chain.subject.deployment.origin:
        parts.append(escaped(chain.subject.deployment.origin))
    if chain.subject.revision:
        parts.append(f"revision {code(chain.subject.revision)}")
    if chain.arguments:
        parts.append(code(" ".join(chain.arguments)))
    return "*" + " · ".join(parts) + "*"


def verdict_words(verdict: Verdict) -> str:
    """Symbol and word."""
    return f"{_SYMBOLS[verdict]} {verdict.word}"


def code(text: str) -> str:
    """Inline code that survives back quotes and table bars in the text."""
    flat = " ".join(text.split()).replace("|", "\\|")
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


def escaped(text: str) -> str:
    """Text from a checkpoint that must not become markup."""
    flat = " ".join(text.split())
    for character in ("\\", "`", "*", "_", "<", "[", "|", "#"):
        flat = flat.replace(character, f"\\{character}")
    return flat
