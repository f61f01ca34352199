"""A report as Markdown: for pull requests, issues and job summaries."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.evidence.chain import ChainReport, LinkReport
from draftproof.evidence.item import EvidenceItem, Severity
from draftproof.evidence.verdict import Verdict

_SYMBOLS = {Verdict.PROVEN: "✅", Verdict.DISPROVED: "❌", Verdict.UNKNOWN: "❔"}
_PLACES_SHOWN = 10


def to_markdown(chain: ChainReport) -> str:
    """The whole report, ending with a newline."""
    return "\n".join(_lines(chain)) + "\n"


def _lines(chain: ChainReport) -> Iterator[str]:
    subject = chain.subject
    yield f"# draftproof verify: {_code(subject.name)}"
    yield ""
    yield f"**{_verdict(chain.verdict)}** {_escape(chain.summary)}"
    yield ""
    yield "| link | verdict | claims | warnings | seconds |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for report in chain.links:
        note = "" if chain.counts(report) else " (does not count: an earlier link is broken)"
        yield (
            f"| {report.link.number} {report.link.value} | {_verdict(report.verdict)}{note} "
            f"| {len(report.items)} | {len(report.warnings)} | {report.seconds:.2f} |"
        )
    for report in chain.links:
        yield ""
        yield from _link(report)
    if chain.does_not_prove:
        yield ""
        yield "## What this report does not prove"
        yield ""
        yield from (f"- {_escape(clause)}" for clause in chain.does_not_prove)
    if chain.not_run:
        yield ""
        yield "## Links that were not run"
        yield ""
        for link in chain.not_run:
            yield f"- {link.number} {link.value}: {link.definition.holds_when}"
    yield ""
    yield _provenance(chain)


def _link(report: LinkReport) -> Iterator[str]:
    yield f"## {report.link.number} {report.link.value}: {_verdict(report.verdict)}"
    yield ""
    yield _escape(report.link.definition.holds_when)
    for item in report.items:
        yield ""
        yield from _item(item)


def _item(item: EvidenceItem) -> Iterator[str]:
    yield f"### {_verdict(item.verdict)} {_escape(item.claim)}"
    yield ""
    yield f"- check: {_code(item.check)}"
    yield f"- expected: {_escape(item.expected)}"
    yield f"- observed: {_escape(item.observed)}"
    if item.reason:
        yield f"- reason: {_escape(item.reason)}"
    if item.where:
        places = ", ".join(_code(str(location)) for location in item.where[:_PLACES_SHOWN])
        rest = len(item.where) - _PLACES_SHOWN
        yield f"- where: {places}" + (f", and {rest} more" if rest > 0 else "")
    for note in item.notes:
        label = "**WARN**" if note.severity is Severity.WARN else "note"
        yield f"- {label}: {_escape(note.text)}" + (f" See {_code(note.command)}" if note.command else "")
    if item.command:
        yield ""
        yield "```sh"
        yield item.command
        yield "```"


def _provenance(chain: ChainReport) -> str:
    parts = [f"draftproof {chain.version}", chain.started_at]
    if chain.subject.revision:
        parts.append(f"revision {_code(chain.subject.revision)}")
    if chain.arguments:
        parts.append(_code(" ".join(chain.arguments)))
    return "*" + " · ".join(parts) + "*"


def _verdict(verdict: Verdict) -> str:
    return f"{_SYMBOLS[verdict]} {verdict.word}"


def _code(text: str) -> str:
    """Inline code that survives back quotes and table bars in the text."""
    flat = " ".join(text.split()).replace("|", "\\|")
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


def _escape(text: str) -> str:
    """Text from a checkpoint that must not become markup."""
    flat = " ".join(text.split())
    for character in ("\\", "`", "*", "_", "<", "[", "|", "#"):
        flat = flat.replace(character, f"\\{character}")
    return flat
