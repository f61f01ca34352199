"""Claims about a head's tensors: each one lands in a parameter, in the precision that it is stored in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from draftproof.checkpoint.precision import Precision
from draftproof.evidence import EvidenceItem, Note, Verdict, information, warning
from draftproof.evidence.quantities import count_text, listing
from draftproof.links.stack_places import locations, show_lines
from draftproof.stacks.code_facts import Fate, HeadSupport, Noticing, TensorLanding
from draftproof.stacks.place import Place

_LOST = (Fate.SKIPPED_SILENTLY, Fate.SKIPPED_WITH_LOG, Fate.REFUSED)
_CLAIM = "Every tensor of the head lands in a parameter, in the precision that it is stored in."
_EXPECTED = "the stack's own loading rules lead each tensor to a parameter of the same precision"
_WRITTEN = "Every parameter of the draft model is written from the checkpoint, or shared with the target."
_PLAIN = frozenset(precision.value for precision in Precision if precision.is_plain)


def landing_item(root: Path, support: HeadSupport) -> EvidenceItem:
    """Whether the tensors land."""
    reading = support.landings
    if reading.value is None:
        return _open(root, "tensors-land", _CLAIM, _EXPECTED, reading.sentence, reading.places)
    landings = reading.value
    if not landings:
        return _open(
            root, "tensors-land", _CLAIM, _EXPECTED, "the checkpoint has no tensor of a head to follow", ()
        )
    wrong = [landing for landing in landings if landing.fate in _LOST or has_wrong_precision(landing)]
    unclear = [landing for landing in landings if landing.fate is Fate.NOT_UNDERSTOOD]
    deciding = wrong or unclear
    verdict = Verdict.DISPROVED if wrong else Verdict.UNKNOWN if unclear else Verdict.PROVEN
    places = _places(deciding or landings)
    observed = _sentences(deciding) if deciding else _summary(landings, support)
    return EvidenceItem(
        check="tensors-land",
        claim=_CLAIM,
        verdict=verdict,
        expected=_EXPECTED,
        observed=observed,
        where=locations(places),
        command=show_lines(root, places),
        reason=observed if verdict is Verdict.UNKNOWN else "",
        notes=tuple(_left_out(root, landings)),
    )


def written_item(root: Path, support: HeadSupport) -> EvidenceItem:
    """Whether the parameters are written, and what happens when one is not."""
    reading, notes = support.unwritten, tuple(_noticing_notes(root, support))
    if reading.value is None:
        item = _open(root, "parameters-written", _WRITTEN, "no parameter is left", reading.sentence, ())
        return replace(item, notes=notes)
    names = [parameter.name for parameter in reading.value]
    places = [parameter.place for parameter in reading.value] or list(reading.places)
    return EvidenceItem(
        check="parameters-written",
        claim=_WRITTEN,
        verdict=Verdict.DISPROVED if names else Verdict.PROVEN,
        expected="no parameter of the draft model is left",
        observed=f"no tensor lands in {listing(names)}" if names else reading.sentence,
        where=locations(places),
        command=show_lines(root, places),
        notes=notes,
    )


def promised(item: EvidenceItem) -> EvidenceItem:
    """The same claim about tensors that only a config promises: open, whatever became of them.

    How a head is really stored shows in its files alone: plain heads in packed checkpoints are the rule, and
    lists of excluded modules are often wrong about them.
    """
    if item.verdict is Verdict.UNKNOWN:
        return item
    reason = f"there are no weight files; with the tensors that the config promises: {item.observed}"
    return replace(item, verdict=Verdict.UNKNOWN, reason=reason)


def has_wrong_precision(landing: TensorLanding) -> bool:
    """The parameter is built in another precision than the tensor has.

    Plain precisions are converted into each other when they are copied.
    """
    if landing.fate is not Fate.LANDS or not landing.built or not landing.stored:
        return False
    if landing.stored in _PLAIN and landing.built in _PLAIN:
        return False
    return landing.stored != landing.built


def _sentences(landings: Sequence[TensorLanding]) -> str:
    """One sentence a reason, with the tensors that share it."""
    by_reason: dict[str, list[TensorLanding]] = {}
    for landing in landings:
        by_reason.setdefault(_reason(landing), []).append(landing)
    parts = []
    for reason, members in list(by_reason.items())[:4]:
        names = listing([member.tensor for member in members], 3)
        total = sum(member.count for member in members)
        parts.append(f"{count_text(total, 'tensor')} ({names}): {reason}")
    if len(by_reason) > 4:
        parts.append(f"and {len(by_reason) - 4} further reasons")
    return "; ".join(parts)


def _reason(landing: TensorLanding) -> str:
    if has_wrong_precision(landing):
        return f"stored in {landing.stored}, read into a parameter that is built for {landing.built}"
    return landing.sentence or landing.fate.value


def _summary(landings: Sequence[TensorLanding], support: HeadSupport) -> str:
    total = sum(landing.count for landing in landings)
    shared = sum(landing.count for landing in landings if landing.fate is Fate.SHARED)
    parameters = {landing.parameter for landing in landings if landing.parameter}
    text = f"{count_text(total, 'tensor')} lead to {count_text(len(parameters), 'parameter')}"
    text += f", {shared} of them replaced by the target's" if shared else ""
    head = support.head_precision
    return f"{text}; the head is built in {head.value}" if head.value is not None else text


def _left_out(root: Path, landings: Sequence[TensorLanding]) -> Iterator[Note]:
    unused = [landing for landing in landings if landing.fate is Fate.LEFT_OUT]
    if unused:
        places = _places(unused)
        yield warning(_sentences(unused), *locations(places), command=show_lines(root, places))


def _noticing_notes(root: Path, support: HeadSupport) -> Iterator[Note]:
    noticing = support.noticing
    places = locations(noticing.places)
    if noticing.value is Noticing.ERROR:
        yield information(noticing.sentence, *places)
    elif noticing.value is None:
        yield information(f"whether the stack would notice a missing tensor is open: {noticing.sentence}")
    else:
        yield warning(
            f"the stack would not stop for an unwritten parameter ({noticing.sentence}): the server would "
            "run with a head of uninitialised memory and an accept length near 1.0",
            *places,
            command=show_lines(root, noticing.places),
        )


def _places(landings: Sequence[TensorLanding]) -> list[Place]:
    return list(dict.fromkeys(place for landing in landings for place in landing.places))


def _open(
    root: Path, check: str, claim: str, expected: str, reason: str, places: Sequence[Place]
) -> EvidenceItem:
    return EvidenceItem(
        check=check,
        claim=claim,
        verdict=Verdict.UNKNOWN,
        expected=expected,
        observed=reason,
        where=locations(places),
        command=show_lines(root, places),
        reason=reason,
    )
