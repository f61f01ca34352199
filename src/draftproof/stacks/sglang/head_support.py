"""Link 3 for SGLang: how this version's source treats the MTP head of one checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from draftproof.errors import SourceError
from draftproof.stacks.classes import ClassSource
from draftproof.stacks.code_facts import HeadSupport, TensorLanding, UnwrittenParameter
from draftproof.stacks.evaluation.evaluator import Evaluator
from draftproof.stacks.evaluation.settings import Settings
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.argument_defaults import argument_defaults, argument_groups
from draftproof.stacks.sglang.built_precision import head_summary
from draftproof.stacks.sglang.defect_conditions import method_of, quantisation_of
from draftproof.stacks.sglang.defects import code_defects
from draftproof.stacks.sglang.draft_config import config_subject, draft_architecture
from draftproof.stacks.sglang.few_experts import few_experts
from draftproof.stacks.sglang.head_class import effective_method, implementation
from draftproof.stacks.sglang.head_loading import HeadSubject, LoadedHead, load_head
from draftproof.stacks.sglang.landings import LoadedCheckpoint, tensor_landings, unwritten_parameters
from draftproof.stacks.sglang.noticing import noticing
from draftproof.stacks.sglang.registry import Registration, registration
from draftproof.stacks.sglang.surroundings import installed, surroundings, with_stand_ins
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree

_ASSUMED_CAPABILITY = 100
"""Compute capability times ten where the user names no GPU; the names and shapes of a head are the same."""
_SETTINGS = Settings(
    paths=8, steps=4_000_000, decide=installed, traced=frozenset({"mark"}), labels_traced=frozenset()
)


@dataclass(frozen=True)
class _Loading:
    """What loading says about the head."""

    head_precision: Reading[str]
    landings: Reading[tuple[TensorLanding, ...]]
    unwritten: Reading[tuple[UnwrittenParameter, ...]]


def head_support(tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
    """Everything that link 3 claims about SGLang and this checkpoint."""
    evaluator = _evaluator(tree)
    target = _target(tree, checkpoint)
    mapped = _mapped(tree, evaluator, checkpoint)
    draft = _draft_registration(tree, mapped)
    implemented: Reading[str] = not_understood(draft.sentence)
    loading = _not_loaded(draft.sentence)
    if draft.value is not None:
        implemented = implementation(tree, draft.value.cls)
        loading = _load(tree, evaluator, checkpoint, situation, draft.value.cls)
    return HeadSupport(
        target=_named(target),
        draft_architecture=mapped,
        draft_class=_class(draft),
        registration=_named(draft),
        implementation=implemented,
        head_precision=loading.head_precision,
        landings=loading.landings,
        unwritten=loading.unwritten,
        noticing=noticing(tree),
        defects=code_defects(tree, checkpoint, situation),
    )


@lru_cache(maxsize=4)
def _evaluator(tree: SourceTree) -> Evaluator:
    """One for all checkpoints that are asked about: what it has read and compiled is kept."""
    return Evaluator(with_stand_ins(tree), surroundings(), _SETTINGS)


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


def _load(
    tree: SourceTree,
    evaluator: Evaluator,
    checkpoint: ServedCheckpoint,
    situation: Situation,
    head: ClassSource,
) -> _Loading:
    few = few_experts(checkpoint)
    subject = HeadSubject(
        head=head,
        config=config_subject(tree, few.config),
        hf_quant_config=checkpoint.hf_quant_config,
        capability=situation.gpu.capability if situation.gpu is not None else _ASSUMED_CAPABILITY,
        defaults=argument_defaults(tree),
        groups=argument_groups(tree),
    )
    loaded = load_head(evaluator, subject, few.tensors)
    named = _quantization_argument(checkpoint)
    words = ""
    if loaded.value is None and named is not None:
        # Older versions do not find ModelOpt's FP4 by themselves.
        again = load_head(evaluator, replace(subject, quantization=named), few.tensors)
        if again.value is not None:
            loaded, words = again, f" with --quantization {named}"
    if loaded.value is None:
        return _not_loaded(loaded.sentence, loaded)
    try:
        loader = effective_method(tree, head, "load_weights")
    except SourceError as error:
        return _not_loaded(error.message)
    if loader is None:
        return _not_loaded(f"{head.name} and its bases have no load_weights")
    whole = LoadedCheckpoint(checkpoint, few, loaded.value, loader, head.place)
    if not checkpoint.head:
        return _without_head(loaded.value, head)
    unwritten = unwritten_parameters(whole)
    every = f"every one of {len(loaded.value.parameters)} parameters is written or shared"
    precision = head_summary(loaded.value.parameters) + words
    return _Loading(
        found(precision, f"the head is built in {precision}", head.place),
        found(tensor_landings(whole), loaded.sentence, loader.place),
        found(unwritten, every if not unwritten else f"{len(unwritten)} are not written", loader.place),
    )


def _quantization_argument(checkpoint: ServedCheckpoint) -> str | None:
    """What a user has to name where SGLang does not find it: ModelOpt's FP4."""
    section = quantisation_of(checkpoint)
    is_fp4 = "FP4" in str(section.get("quant_algo", "")).upper()
    return "modelopt_fp4" if is_fp4 and method_of(checkpoint).startswith("modelopt") else None


def _without_head(loaded: LoadedHead, head: ClassSource) -> _Loading:
    precision = head_summary(loaded.parameters)
    nothing = "the checkpoint has no tensor of a head to follow"
    return _Loading(
        found(precision, f"the head is built in {precision}", head.place),
        found((), nothing, head.place),
        not_understood(nothing, head.place),
    )


def _not_loaded(sentence: str, reading: Reading[LoadedHead] | None = None) -> _Loading:
    places = reading.places if reading is not None else ()
    return _Loading(
        not_understood(sentence, *places),
        not_understood(sentence, *places),
        not_understood(sentence, *places),
    )
