"""Link 3 for SGLang: how this version's source treats the MTP head of one checkpoint."""

from __future__ import annotations

from functools import lru_cache

from draftproof.stacks.code_facts import HeadSupport
from draftproof.stacks.evaluation.evaluator import Evaluator
from draftproof.stacks.fact_store import remember
from draftproof.stacks.kept_head import HeadReader, KeptHead, head_identity
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.recorded_reading import RecordedReading
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.code.defects import DEFECTS
from draftproof.stacks.sglang.code.draft_config import draft_architecture
from draftproof.stacks.sglang.code.head_class import implementation
from draftproof.stacks.sglang.code.loading_readings import not_loaded, read_loading
from draftproof.stacks.sglang.code.noticing import noticing
from draftproof.stacks.sglang.code.registry import Registration, registration
from draftproof.stacks.sglang.code.surroundings import SETTINGS, surroundings, with_stand_ins
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree

_ASSUMED_CAPABILITY = 100
"""Compute capability times ten where the user names no GPU; the names and shapes of a head are the same."""


def head_support(tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
    """Everything that link 3 claims about SGLang and this checkpoint."""
    capability = situation.gpu.capability if situation.gpu is not None else _ASSUMED_CAPABILITY
    reader = _reader(tree)
    name = f"sglang head {head_identity(checkpoint)} {capability}"
    kept = remember(tree, name, lambda view: _read(view, reader, checkpoint, capability), KeptHead)
    return kept.support(DEFECTS, checkpoint, situation)


@lru_cache(maxsize=4)
def _reader(tree: SourceTree) -> HeadReader:
    """One for all checkpoints that are asked about: what it has read and compiled is kept."""
    recorded = RecordedReading(tree)
    return HeadReader(Evaluator(with_stand_ins(recorded), surroundings(), SETTINGS), recorded)


def _read(tree: SourceTree, reader: HeadReader, checkpoint: ServedCheckpoint, capability: int) -> KeptHead:
    evaluator = reader.evaluator
    target = _target(tree, checkpoint)
    mapped = _mapped(tree, evaluator, checkpoint)
    draft = _draft_registration(tree, mapped)
    implemented: Reading[str] = not_understood(draft.sentence)
    loading = not_loaded(draft.sentence)
    if draft.value is not None:
        implemented = implementation(tree, draft.value.cls)
        loading = read_loading(tree, evaluator, checkpoint, capability, draft.value.cls)
    reader.recorded.replay(tree)
    return KeptHead(
        target=_named(target),
        draft_architecture=mapped,
        draft_class=_class(draft),
        registration=_named(draft),
        implementation=implemented,
        loading=loading,
        noticing=noticing(tree),
        defects=tuple(defect.query(tree) for defect in DEFECTS),
    )


def _target(tree: SourceTree, checkpoint: ServedCheckpoint) -> Reading[Registration]:
    if not checkpoint.architecture:
        return not_understood("looked for architectures in config.json; it names none")
    return registration(tree, checkpoint.architecture)


def _mapped(tree: SourceTree, evaluator: Evaluator, checkpoint: ServedCheckpoint) -> Reading[str]:
    architecture = checkpoint.architecture
    if not architecture:
        return not_understood("looked for architectures in config.json; it names none")
    return draft_architecture(tree, evaluator, checkpoint.config, architecture)


def _draft_registration(tree: SourceTree, mapped: Reading[str]) -> Reading[Registration]:
    if mapped.value is None:
        return not_understood("no draft architecture is known")
    return registration(tree, mapped.value)


def _named(reading: Reading[Registration]) -> Reading[str]:
    value = reading.value.cls.name if reading.value is not None else None
    return Reading(value, reading.sentence, reading.places, reading.understood)


def _class(reading: Reading[Registration]) -> Reading[str]:
    if reading.value is None:
        return _named(reading)
    cls = reading.value.cls
    return found(cls.name, f"class {cls.name} is in {cls.file}", cls.place)
