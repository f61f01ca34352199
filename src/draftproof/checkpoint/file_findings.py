"""What one weight file shows by itself: no header, cut off, too long, empty."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.checkpoint.finding import Finding, FindingKind, shown_names
from draftproof.checkpoint.header import FileHeader, TensorEntry


@dataclass(frozen=True)
class FileReading:
    """What became of reading one file's header.

    Attributes:
        file: relative name.
        size: bytes of the file.
        header: None when it is unusable.
        problem: why it is unusable.
    """

    file: str
    size: int
    header: FileHeader | None
    problem: str | None

    @property
    def tensors(self) -> tuple[TensorEntry, ...]:
        """What the header lists; nothing when it is unusable."""
        return self.header.tensors if self.header else ()


def file_findings(reading: FileReading) -> list[Finding]:
    """Everything that is wrong with one file, whatever the others say."""
    file, header = reading.file, reading.header
    if reading.size == 0:
        return [Finding(FindingKind.EMPTY_FILE, file, f"{file} is empty")]
    if header is None:
        return [Finding(FindingKind.BROKEN_FILE, file, reading.problem or f"{file} is unusable")]
    findings = []
    if not header.tensors:
        findings.append(Finding(FindingKind.EMPTY_FILE, file, f"{file} holds no tensor"))
    if header.surplus_bytes < 0:
        cut = tuple(sorted(e.name for e in header.tensors if e.start + e.nbytes > reading.size))
        message = f"{file} is {-header.surplus_bytes} bytes short: {shown_names(cut)} cut off"
        findings.append(Finding(FindingKind.TRUNCATED_FILE, file, message, cut))
    if header.surplus_bytes > 0:
        message = f"{file} has {header.surplus_bytes} bytes after its last tensor"
        findings.append(Finding(FindingKind.TRAILING_BYTES, file, message))
    return findings
