"""Claims about known defects: those that break this checkpoint one by one, the others together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from draftproof.evidence import EvidenceItem, Note, Verdict, information, warning
from draftproof.evidence.quantities import count_text
from draftproof.links.stack_places import locations, show_lines
from draftproof.stacks.defect import DefectFinding, DefectLink, Harm


def defect_items(root: Path, link: DefectLink, findings: Sequence[DefectFinding]) -> Iterator[EvidenceItem]:
    """A claim for each defect that breaks this link here, or may; one for all the others.

    Args:
        root: folder of the stack's source, for the commands.
        link: the link whose defects are wanted.
        findings: what the queries saw.
    """
    own = [finding for finding in findings if finding.defect.link is link]
    if not own:
        return
    breaking = [finding for finding in own if _matters(finding) and finding.defect.harm is Harm.BREAKS]
    for finding in breaking:
        yield _breaking(root, finding)
    rest = [finding for finding in own if finding not in breaking]
    if rest:
        yield _others(root, rest)


def _matters(finding: DefectFinding) -> bool:
    """It applies here, and was not found to be absent."""
    return finding.applies and (finding.present.value is True or not finding.present.understood)


def _breaking(root: Path, finding: DefectFinding) -> EvidenceItem:
    defect, present = finding.defect, finding.present
    observed = f"{defect.title}: {present.sentence}; {defect.consequence}"
    open_question = f"it is open whether this source has the defect {defect.identifier}: {present.sentence}"
    return EvidenceItem(
        check=f"defect-{defect.identifier}",
        claim=f"This source does not have a known defect that breaks this head ({defect.upstream}).",
        verdict=Verdict.DISPROVED if present.understood else Verdict.UNKNOWN,
        expected=f"not there: {defect.looks_for}",
        observed=observed if present.understood else open_question,
        where=locations(present.places),
        command=show_lines(root, present.places),
        reason="" if present.understood else open_question,
        notes=(information(f"workaround: {defect.workaround}"),) if defect.workaround else (),
    )


def _others(root: Path, findings: Sequence[DefectFinding]) -> EvidenceItem:
    places = [place for finding in findings if _matters(finding) for place in finding.present.places[:1]]
    there = [finding for finding in findings if finding.present.value is True]
    concern = sum(finding.applies for finding in there)
    observed = f"looked for {count_text(len(findings), 'known defect')}: {len(there)} are in this source"
    observed += f", {concern} of them concern this checkpoint without breaking it" if concern else ""
    return EvidenceItem(
        check="known-defects",
        claim="No other known defect of this stack breaks this head.",
        verdict=Verdict.PROVEN,
        expected="no known defect that applies to this checkpoint",
        observed=observed,
        where=locations(places),
        command=show_lines(root, places),
        notes=tuple(_notes(root, findings)),
    )


def _notes(root: Path, findings: Sequence[DefectFinding]) -> Iterator[Note]:
    for finding in findings:
        if not _matters(finding):
            continue
        defect, present = finding.defect, finding.present
        remedy = f"; workaround: {defect.workaround}" if defect.workaround else ""
        if present.understood:
            text = f"{defect.title} ({defect.upstream}): {defect.consequence}{remedy}"
            yield warning(text, *locations(present.places), command=show_lines(root, present.places))
        else:
            text = f"it is open whether this source has the defect {defect.identifier}: {present.sentence}"
            yield information(text)
