"""Claims about a head whose family is known by a naming rule, without a plan of every tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from draftproof.architecture.mtp_layout import HeadSurvey
from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.precision import ModulePrecision, Precision, decide, group_by_module
from draftproof.checkpoint.selection import looks_like_mtp
from draftproof.errors import UnknownArchitecture
from draftproof.evidence import EvidenceItem, Location, Note, Verdict, information, warning
from draftproof.evidence.quantities import count_text, listing
from draftproof.links.examined import place_of
from draftproof.links.subject import commands_for
from draftproof.links.value_reading import StoredModules

_PLACES = 20


def surveyed_modules(checkpoint: Checkpoint, survey: HeadSurvey) -> StoredModules:
    """All modules on disk that have a weight, by the naming rule of the head.

    Norms, biases and other tensors outside `.weight` are left out: without a plan their role is not known.
    """
    in_head = set(survey.names)
    head: list[ModulePrecision] = []
    target: list[ModulePrecision] = []
    for module, leaves in group_by_module(checkpoint.inventory.tensors.values()).items():
        stored = decide(module, leaves)
        if stored.weight is not None:
            (head if stored.weight.name in in_head else target).append(stored)
    return StoredModules(head, target)


def family_items(
    checkpoint: Checkpoint, survey: HeadSurvey, modules: StoredModules, error: UnknownArchitecture
) -> Iterator[EvidenceItem]:
    """What can be said without a plan: the head by its names, scales by their companions."""
    if survey.expected_layers or survey.names:
        yield _head_complete(checkpoint, survey)
    yield _scales_there(checkpoint, survey, modules)
    yield EvidenceItem(
        check="target-complete",
        claim="Every other tensor that the architecture requires is there, in the right shape.",
        verdict=Verdict.UNKNOWN,
        expected="a plan of every tensor, made from the config",
        observed=f"{count_text(len(checkpoint.inventory.tensors), 'tensor')}, not compared with anything",
        where=(Location("config.json", field="architectures"),),
        command=commands_for(checkpoint).field("config.json", "architectures"),
        reason=f"{survey.family.title} is known by its head's names alone ({error.message})",
    )


def _head_complete(checkpoint: Checkpoint, survey: HeadSurvey) -> EvidenceItem:
    verdict, observed, reason = _judged(survey)
    tensors = checkpoint.inventory.tensors
    shown = survey.missing[0].rstrip("*") if survey.missing and survey.names else "mtp"
    commands, index = commands_for(checkpoint), checkpoint.inventory.index
    files = checkpoint.inventory.files
    command = commands.tensor_names(index.file, shown) if index else ""
    if not index and files:
        command = commands.header(files[0].name, shown)
    return EvidenceItem(
        check="head-complete",
        claim="Every tensor of the MTP head is there.",
        verdict=verdict,
        expected=f"{survey.family.title}: {count_text(survey.expected_layers, 'layer')} named "
        f"{listing(survey.looked_for)}",
        observed=observed,
        where=tuple(place_of(tensors[name]) for name in survey.names[:_PLACES])
        or tuple(Location(tensor=prefix) for prefix in survey.looked_for[:_PLACES]),
        command=command,
        reason=reason,
        notes=tuple(_elsewhere_notes(checkpoint, survey)),
    )


def _judged(survey: HeadSurvey) -> tuple[Verdict, str, str]:
    """Verdict, observation and reason."""
    found = count_text(len(survey.names), "tensor")
    if not survey.names:
        promised = count_text(survey.expected_layers, "layer")
        return Verdict.DISPROVED, f"0 tensors, for a head of {promised} that the config promises", ""
    if survey.missing:
        return Verdict.DISPROVED, f"{found}; missing {listing(survey.missing)}", ""
    if survey.sibling is None and not survey.family.required:
        return Verdict.UNKNOWN, found, f"{found} are there, and nothing is known to compare them with"
    against = f", complete against {survey.sibling}*" if survey.sibling else ""
    return Verdict.PROVEN, f"{found} in {count_text(len(survey.layers), 'layer')}{against}", ""


def _elsewhere_notes(checkpoint: Checkpoint, survey: HeadSurvey) -> Iterator[Note]:
    unread = [
        entry for entry in checkpoint.inventory.unindexed if looks_like_mtp(entry.name) or _side(entry.file)
    ]
    if unread and (survey.missing or not survey.names):
        files = sorted({entry.file for entry in unread})
        yield warning(
            f"{count_text(len(unread), 'tensor')} in {listing(files, 2)}, which no load reads: name "
            "them in the index",
            *(place_of(entry) for entry in unread[:_PLACES]),
        )
    elif not survey.names:
        yield information(
            "exporters that load the model without its head lose it: take the tensors from the original "
            "checkpoint"
        )


def _side(file: str) -> bool:
    return "mtp" in file.lower() or "nextn" in file.lower()


def _scales_there(checkpoint: Checkpoint, survey: HeadSurvey, modules: StoredModules) -> EvidenceItem:
    broken = [stored for stored in modules.all if stored.problems]
    problems = [problem for stored in broken for problem in stored.problems]
    unknown = [s for s in modules.all if s.precision is Precision.UNKNOWN]
    counts = Counter(stored.precision.value for stored in modules.head if stored not in unknown)
    head = ", ".join(f"{name} ({count:,})" for name, count in counts.most_common()) or "no matrix"
    weights = [stored.weight for stored in broken if stored.weight]
    shown = weights[0] if weights else next((s.weight for s in modules.all if s.weight), None)
    return EvidenceItem(
        check="scales-there",
        claim="Every quantised weight has the scales that it needs, in the right shape.",
        verdict=Verdict.DISPROVED if problems else Verdict.PROVEN,
        expected="the scales of its scheme beside every weight",
        observed=listing(problems, 3) or f"MTP head: {head}",
        where=tuple(place_of(weight) for weight in weights[:_PLACES]),
        command=commands_for(checkpoint).header(shown.file, shown.name) if shown else "",
    )
