"""One claim and what was observed about it. All text is made printable when evidence is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from draftproof.evidence.printable import make_printable, printable
from draftproof.evidence.verdict import Verdict


@dataclass(frozen=True)
class Location:
    """Where something was observed.

    Attributes:
        file: file name, relative to the subject (a shard, a config file, a source file); empty when the
            place is no file (a metric of a running server).
        field: JSON path inside the file: "text_config.mtp_num_hidden_layers".
        tensor: tensor name inside the file.
        line: line of a text file, from 1; None when it does not apply.
        metric: name of a metric or counter of a running engine.
    """

    file: str = ""
    field: str = ""
    tensor: str = ""
    line: int | None = None
    metric: str = ""

    def __post_init__(self) -> None:
        make_printable(self, "file", "field", "tensor", "metric")

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        return ": ".join(part for part in (place, self.field or self.tensor or self.metric) if part)


class Severity(Enum):
    """How much a note matters."""

    INFO = "info"
    WARN = "warn"


@dataclass(frozen=True)
class Note:
    """Something worth knowing that does not decide the claim.

    Attributes:
        severity: WARN when something may go wrong elsewhere because of it.
        text: one or two sentences; names the thing.
        where: places it was seen.
        command: a shell command that shows it; empty when the claim's own does.
    """

    severity: Severity
    text: str
    where: tuple[Location, ...] = ()
    command: str = ""

    def __post_init__(self) -> None:
        make_printable(self, "text", "command")


def information(text: str, *where: Location, command: str = "") -> Note:
    """A note that informs."""
    return Note(Severity.INFO, text, where, command)


def warning(text: str, *where: Location, command: str = "") -> Note:
    """A note that warns."""
    return Note(Severity.WARN, text, where, command)


@dataclass(frozen=True)
class EvidenceTable:
    """Figures that belong together, for people who read rows and columns.

    Attributes:
        title: what the figures are.
        head: names of the columns.
        rows: cells as text, as many in each row as there are names.

    Raises:
        ValueError: a row of another length.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.head) for row in self.rows):
            raise ValueError(f"{self.title}: every row needs {len(self.head)} cells")
        make_printable(self, "title", "head")
        object.__setattr__(self, "rows", tuple(tuple(map(printable, row)) for row in self.rows))


@dataclass(frozen=True)
class EvidenceItem:
    """A claim, what would be seen if it held, what was seen, and how anyone can see it.

    Attributes:
        check: stable name of the check inside its link ("head-complete"); reports and scripts refer to it.
        claim: a sentence that can be false.
        verdict: PROVEN, DISPROVED or UNKNOWN.
        expected: what is seen when the claim holds.
        observed: what was seen.
        where: the places that were looked at; the first ones when there are many.
        command: a shell command that shows the observation; empty when nothing can be run.
        reason: why the claim is UNKNOWN; required then, empty otherwise.
        notes: findings that do not decide the claim.
        tables: figures behind what was observed.

    Raises:
        ValueError: an UNKNOWN claim without a reason, or a reason beside another verdict.
    """

    check: str
    claim: str
    verdict: Verdict
    expected: str
    observed: str
    where: tuple[Location, ...] = ()
    command: str = ""
    reason: str = ""
    notes: tuple[Note, ...] = ()
    tables: tuple[EvidenceTable, ...] = ()

    def __post_init__(self) -> None:
        if (self.verdict is Verdict.UNKNOWN) != bool(self.reason):
            raise ValueError(f"{self.check}: a reason belongs to UNKNOWN claims, and to them only")
        make_printable(self, "check", "claim", "expected", "observed", "command", "reason")

    @property
    def warnings(self) -> tuple[Note, ...]:
        """The notes that warn."""
        return tuple(note for note in self.notes if note.severity is Severity.WARN)
