"""Lines of a stack's source as evidence: where they are, and the command that shows them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from draftproof.evidence import EvidenceItem, Location, Verdict
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading

MOST_PLACES = 20
_LINES_SHOWN = 12
_COMMANDS = 3

T = TypeVar("T")


def locations(places: Iterable[Place]) -> tuple[Location, ...]:
    """Each place once, the first `MOST_PLACES`."""
    return tuple(Location(place.file, line=place.line) for place in dict.fromkeys(places))[:MOST_PLACES]


def show_lines(root: Path, places: Sequence[Place]) -> str:
    """A command that prints the source from each place on; empty without places."""
    commands = []
    for place in list(dict.fromkeys(places))[:_COMMANDS]:
        file = shlex.quote(str(root / place.file))
        commands.append(f"sed -n '{place.line},{place.line + _LINES_SHOWN - 1}p' {file}")
    return "; ".join(commands)


def read_verdict(reading: Reading[T]) -> Verdict:
    """PROVEN for a found value, DISPROVED for an absent one, UNKNOWN for a form that no rule knows."""
    if not reading.understood:
        return Verdict.UNKNOWN
    return Verdict.PROVEN if reading.is_found else Verdict.DISPROVED


def reading_item(root: Path, check: str, claim: str, expected: str, reading: Reading[T]) -> EvidenceItem:
    """A claim that holds when a reading found something."""
    verdict = read_verdict(reading)
    return EvidenceItem(
        check=check,
        claim=claim,
        verdict=verdict,
        expected=expected,
        observed=reading.sentence,
        where=locations(reading.places),
        command=show_lines(root, reading.places),
        reason=reading.sentence if verdict is Verdict.UNKNOWN else "",
    )
