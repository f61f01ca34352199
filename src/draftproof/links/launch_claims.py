"""Claims of link 4: what was found about a command's words, and what the stack makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from draftproof.evidence import EvidenceItem, Note, Verdict, information, warning
from draftproof.links.stack_places import locations, reading_item, show_lines
from draftproof.stacks.launch_facts import LaunchFinding, ResolvedLaunch, Ruling
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading

_MOST_SENTENCES = 4
_ORDER = (Ruling.BREAKS, Ruling.UNKNOWN, Ruling.WARNS, Ruling.HOLDS)


def finding_items(root: Path, findings: Sequence[LaunchFinding]) -> Iterator[EvidenceItem]:
    """One claim for each check; the gravest finding decides it, and the others stay in its notes.

    Args:
        root: folder of the stack's source, for the commands.
        findings: what was found.
    """
    for check in dict.fromkeys(finding.check for finding in findings):
        yield _finding_item(root, [finding for finding in findings if finding.check == check])


def _finding_item(root: Path, findings: Sequence[LaunchFinding]) -> EvidenceItem:
    ruling = next(ruling for ruling in _ORDER if any(finding.ruling is ruling for finding in findings))
    deciding = [finding for finding in findings if finding.ruling is ruling]
    first = deciding[0]
    observed = _joined([_sentence(finding) for finding in deciding])
    places = [place for finding in deciding for place in finding.places]
    verdict = _verdict(ruling)
    return EvidenceItem(
        check=first.check,
        claim=_decided_claim(ruling, first.claim),
        verdict=verdict,
        expected=first.expected,
        observed=observed,
        where=locations(places),
        command=show_lines(root, places),
        reason=observed if verdict is Verdict.UNKNOWN else "",
        notes=tuple(_notes(root, findings, ruling)),
    )


def _decided_claim(ruling: Ruling, claim: str) -> str:
    """What is proven when the gravest finding only warns: the claim itself may well be false then."""
    return f"What is said against this breaks nothing: {claim}" if ruling is Ruling.WARNS else claim


def _verdict(ruling: Ruling) -> Verdict:
    if ruling is Ruling.BREAKS:
        return Verdict.DISPROVED
    return Verdict.UNKNOWN if ruling is Ruling.UNKNOWN else Verdict.PROVEN


def _sentence(finding: LaunchFinding) -> str:
    return f"{finding.subject}: {finding.observed}" if finding.subject else finding.observed


def _joined(sentences: Sequence[str]) -> str:
    once = list(dict.fromkeys(sentences))
    more = len(once) - _MOST_SENTENCES
    return "; ".join(once[:_MOST_SENTENCES]) + (f"; and {more} more" if more > 0 else "")


def _notes(root: Path, findings: Sequence[LaunchFinding], deciding: Ruling) -> Iterator[Note]:
    for finding in findings:
        sentence, where = _sentence(finding), locations(finding.places)
        command = show_lines(root, finding.places)
        if finding.ruling is Ruling.WARNS:
            remedy = f"; instead: {finding.remedy}" if finding.remedy else ""
            yield warning(f"{sentence}{remedy}", *where, command=command)
        elif finding.ruling is Ruling.UNKNOWN and deciding is not Ruling.UNKNOWN:
            yield warning(f"open: {sentence}", *where, command=command)
        elif finding.remedy:
            yield information(f"instead: {finding.remedy}", *where, command=command)


def resolution_items(root: Path, resolved: ResolvedLaunch) -> Iterator[EvidenceItem]:
    """Claims about what is in force after the stack's own resolution of the command."""
    yield reading_item(
        root,
        "speculation-on",
        "Speculation is on after the stack's own resolution of the command.",
        "an algorithm in force that drafts with the checkpoint's head",
        resolved.algorithm,
    )
    if _is_off(resolved.algorithm):
        return
    yield reading_item(
        root,
        "draft-tokens-in-force",
        "The number of drafts per verify pass is decided.",
        "a number of drafts in force",
        resolved.draft_tokens,
    )
    yield reading_item(
        root,
        "draft-weights",
        "The stack knows where the head's weights are.",
        "the checkpoint's own path, or a rule that falls back on it",
        resolved.draft_path,
    )
    yield _unchanged_item(root, resolved)


def _is_off(algorithm: Reading[str]) -> bool:
    return algorithm.understood and not algorithm.is_found


def _unchanged_item(root: Path, resolved: ResolvedLaunch) -> EvidenceItem:
    """What the stack changes unasked: warnings when known, an open claim when it could not be followed."""
    changes = [reading for reading in resolved.changed if reading.understood]
    lost = [reading for reading in resolved.changed if not reading.understood]
    places: list[Place] = [place for reading in (lost or changes) for place in reading.places]
    known = _joined([reading.sentence for reading in changes]) or "nothing"
    lost_text = _joined([reading.sentence for reading in lost])
    return EvidenceItem(
        check="unchanged",
        claim="Everything that the stack changes in the command without being asked is known.",
        verdict=Verdict.UNKNOWN if lost else Verdict.PROVEN,
        expected="the stack's own resolution, followed to its end",
        observed=f"not followed: {lost_text}" if lost else f"changed: {known}",
        where=locations(places),
        command=show_lines(root, places),
        reason=lost_text if lost else "",
        notes=tuple(
            warning(reading.sentence, *locations(reading.places), command=show_lines(root, reading.places))
            for reading in changes
        ),
    )
