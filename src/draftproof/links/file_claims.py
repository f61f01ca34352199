"""Claims about the weight files themselves: there, whole, and as the index says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.finding import Finding, FindingKind
from draftproof.checkpoint.index import INDEX_FILE
from draftproof.checkpoint.inventory import FileRole, WeightFile
from draftproof.evidence import EvidenceItem, Location, Note, Verdict, warning
from draftproof.evidence.quantities import count_text, size_text
from draftproof.links.shell_commands import ShellCommands
from draftproof.links.subject import commands_for

_PLACES = 20
_ABSENT = frozenset(
    (
        FindingKind.NO_WEIGHTS,
        FindingKind.OTHER_FORMAT,
        FindingKind.REFUSED_FILE,
        FindingKind.EMPTY_FILE,
        FindingKind.BROKEN_FILE,
        FindingKind.BROKEN_INDEX,
        FindingKind.STALE_INDEX,
        FindingKind.MISSING_SHARD,
        FindingKind.RENAMED_SHARD,
    )
)
_CUT = frozenset((FindingKind.TRUNCATED_FILE, FindingKind.TRAILING_BYTES))
_CONTRADICTED = frozenset(
    (
        FindingKind.TENSOR_NOT_IN_SHARD,
        FindingKind.TENSOR_IN_OTHER_SHARD,
        FindingKind.DUPLICATE_TENSOR,
        FindingKind.TENSOR_NOT_IN_INDEX,
        FindingKind.TOTAL_SIZE_MISMATCH,
    )
)
# Kinds that never decide a claim: what a load does not read, or does not need, cannot break it.
_HARMLESS = frozenset((FindingKind.TENSOR_NOT_IN_INDEX, FindingKind.TOTAL_SIZE_MISMATCH))
# Kinds that leave a claim open: weights may be there, in a form or a place that is not read.
_OPEN = frozenset((FindingKind.OTHER_FORMAT, FindingKind.REFUSED_FILE))


def file_items(checkpoint: Checkpoint, commands: ShellCommands) -> Iterator[EvidenceItem]:
    """Up to three claims, from the findings; none about lengths when no file can be read."""
    findings = _relevant(checkpoint)
    inventory = checkpoint.inventory
    loaded = [file for file in inventory.files if file.role is FileRole.LOADED]
    size = sum(file.size for file in loaded)
    readable = [file for file in loaded if file.tensor_count]
    absent = [finding for finding in findings if finding.kind in _ABSENT]
    yield _claim(
        checkpoint,
        "files-there",
        "Every weight file of the checkpoint is there and can be read.",
        "every file that the index or the numbering names has a sound header",
        f"{count_text(len(loaded), 'file')}, {size_text(size)}",
        absent,
        commands.files(),
        tuple(_stray_notes(checkpoint)),
    )
    if readable or not absent:
        yield _files_whole(checkpoint, commands, findings, readable, absent)
    contradictions = [finding for finding in findings if finding.kind in _CONTRADICTED]
    if inventory.index is not None:
        promised, found = len(inventory.index.weight_map), len(inventory.tensors)
        unread = f"; the files of {promised - found:,} more are missing or unreadable" if absent else ""
        yield _claim(
            checkpoint,
            "index-agrees",
            "The index and the files say the same.",
            "every tensor lies in the file that the index names, and in no other",
            f"{count_text(found, 'tensor')} where the index says{unread if found < promised else ''}",
            contradictions,
            commands.tensor_names(inventory.index.file, _first_name(contradictions) or "weight_map"),
        )
    elif contradictions:
        yield _claim(
            checkpoint,
            "names-once",
            "Every tensor is in one file only.",
            "no name twice",
            "no name twice",
            contradictions,
            commands.files(),
        )


def _files_whole(
    checkpoint: Checkpoint,
    commands: ShellCommands,
    findings: Sequence[Finding],
    readable: Sequence[WeightFile],
    absent: Sequence[Finding],
) -> EvidenceItem:
    cut = [finding for finding in findings if finding.kind in _CUT]
    return _claim(
        checkpoint,
        "files-whole",
        "Every weight file is exactly as long as its header says.",
        "no byte missing at the end, and none too many",
        f"the size of {count_text(len(readable), 'readable file')} agrees" if absent else "every size agrees",
        cut,
        commands.files(*[finding.file for finding in cut][:3]),
    )


def _relevant(checkpoint: Checkpoint) -> list[Finding]:
    """Findings about files that a load reads or looks for; what is wrong with a stray file is only a note."""
    strays = {file.name for file in checkpoint.inventory.files if file.role is FileRole.UNINDEXED}
    about_strays = {FindingKind.UNINDEXED_FILE, FindingKind.UNINDEXED_MTP_FILE}
    # A refused file that the index names is one finding, not two.
    named = {f.file for f in checkpoint.inventory.findings if f.kind is FindingKind.MISSING_SHARD}
    return [
        finding
        for finding in checkpoint.inventory.findings
        if finding.kind not in about_strays
        and (finding.file not in strays or finding.kind is FindingKind.RENAMED_SHARD)
        and not (
            finding.kind is FindingKind.REFUSED_FILE
            and (finding.file in named or not finding.file.endswith(".safetensors"))
        )
    ]


def _stray_notes(checkpoint: Checkpoint) -> Iterator[Note]:
    for finding in checkpoint.inventory.findings:
        if finding.kind in (FindingKind.UNINDEXED_FILE, FindingKind.UNINDEXED_MTP_FILE):
            yield warning(
                f"{finding.message}: a loader that reads every file it finds merges it in",
                Location(finding.file),
            )


def _claim(
    checkpoint: Checkpoint,
    check: str,
    claim: str,
    expected: str,
    sound: str,
    findings: Sequence[Finding],
    command: str,
    notes: tuple[Note, ...] = (),
) -> EvidenceItem:
    open_findings = [finding for finding in findings if _leaves_open(checkpoint, finding)]
    harmless = [finding for finding in findings if finding.kind in _HARMLESS]
    broken = [finding for finding in findings if finding not in open_findings and finding not in harmless]
    verdict, reason = Verdict.PROVEN, ""
    if broken:
        verdict = Verdict.DISPROVED
    elif open_findings:
        verdict, reason = Verdict.UNKNOWN, open_findings[0].message
    decided = broken or open_findings
    observed = "; ".join(finding.message for finding in decided[:3]) or sound
    if len(decided) > 3:
        observed += f"; and {len(decided) - 3} more"
    return EvidenceItem(
        check=check,
        claim=claim,
        verdict=verdict,
        expected=expected,
        observed=observed,
        where=tuple(place for finding in decided for place in _places(finding))[:_PLACES],
        command=command,
        reason=reason,
        notes=(*(_harmless_note(checkpoint, finding) for finding in harmless), *notes),
    )


def _harmless_note(checkpoint: Checkpoint, finding: Finding) -> Note:
    commands = commands_for(checkpoint)
    if finding.kind is FindingKind.TOTAL_SIZE_MISMATCH:
        command = commands.field(finding.file, "total_size")
    else:
        command = commands.tensor_names(INDEX_FILE, finding.tensors[0]) if finding.tensors else ""
    return warning(finding.message, *_places(finding), command=command)


def _leaves_open(checkpoint: Checkpoint, finding: Finding) -> bool:
    """A file that is there and is not read (a link out of the folder) is no missing file."""
    missing = finding.kind is FindingKind.MISSING_SHARD and finding.file in checkpoint.source.refused
    return missing or finding.kind in _OPEN


def _places(finding: Finding) -> tuple[Location, ...]:
    if not finding.tensors:
        return (Location(finding.file),)
    return tuple(Location(finding.file, tensor=name) for name in finding.tensors[:_PLACES])


def _first_name(findings: Sequence[Finding]) -> str:
    return next((finding.tensors[0] for finding in findings if finding.tensors), "")
