"""Link 3 for vLLM: how this version's source treats the MTP head of one checkpoint."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from draftproof.stacks.code_facts import HeadSupport, Noticing
from draftproof.stacks.evaluation import Evaluator
from draftproof.stacks.fact_store import remember
from draftproof.stacks.kept_head import HeadReader, KeptHead, LoadingReadings, head_identity
from draftproof.stacks.place import Place
from draftproof.stacks.reading import Reading, found, not_understood
from draftproof.stacks.recorded_reading import RecordedReading
from draftproof.stacks.representatives import Representatives, representatives
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.situation import Situation
from draftproof.stacks.source import SourceTree
from draftproof.stacks.vllm.code.class_body import find_method, implementation, lineage
from draftproof.stacks.vllm.code.class_location import ClassSite, locate_class
from draftproof.stacks.vllm.code.defects import DEFECTS
from draftproof.stacks.vllm.code.draft_mapping import DraftMapping, draft_mapping
from draftproof.stacks.vllm.code.draft_model import (
    DraftBuilder,
    DraftRun,
    DraftSubject,
    draft_evaluator,
)
from draftproof.stacks.vllm.code.landings import (
    Loaded,
    head_precision,
    is_about_missing,
    refused_landings,
    tensor_landings,
    unwritten_parameters,
)
from draftproof.stacks.vllm.code.noticing import noticing
from draftproof.stacks.vllm.code.quantisation import Quantisation, quantisation
from draftproof.stacks.vllm.code.registry import registration

_DRAFTERS = (
    "vllm/v1/worker/gpu/spec_decode/eagle/utils.py",
    "vllm/v1/spec_decode/llm_base_proposer.py",
    "vllm/v1/spec_decode/eagle.py",
)
_SHARING = re.compile(r"(draft_inner|self\.model\.model)\.embed_tokens = target_embed")
_OURS = re.compile(
    r"(AttributeError: .* object has no attribute|TypeError|NameError|UnboundLocalError|RecursionError)"
)
"""Errors that may come from what takes the place of torch or of a config's class."""
_PARAMETER = re.compile(
    r"AttributeError: (?!'PretrainedConfig').* has no attribute '\w*(weight|scale|bias|zeros)\w*'$"
)
"""While tensors are loaded, vLLM's own error for a parameter that the layer does not have."""
_KERNELS = ("/kernels/", "/oracle/")
_DEFAULT_CAPABILITY = (10, 0)


def head_support(tree: SourceTree, checkpoint: ServedCheckpoint, situation: Situation) -> HeadSupport:
    """Everything that link 3 claims about vLLM and this checkpoint."""
    gpu = situation.gpu
    capability = divmod(gpu.capability, 10) if gpu is not None else _DEFAULT_CAPABILITY
    reader = _reader(tree)
    name = f"vllm head {head_identity(checkpoint)} {capability}"
    kept = remember(tree, name, lambda view: _read_source(view, reader, checkpoint, capability), KeptHead)
    return kept.support(DEFECTS, checkpoint, situation)


@lru_cache(maxsize=4)
def _reader(tree: SourceTree) -> HeadReader:
    """One for all checkpoints that are asked about: what it has read and compiled is kept."""
    recorded = RecordedReading(tree)
    return HeadReader(draft_evaluator(recorded), recorded)


def _read_source(
    tree: SourceTree, reader: HeadReader, checkpoint: ServedCheckpoint, capability: tuple[int, int]
) -> KeptHead:
    evaluator = reader.evaluator
    target_site, target = _class_of(tree, checkpoint.architecture)
    mapping = draft_mapping(tree, evaluator, checkpoint)
    defects = tuple(defect.query(tree) for defect in DEFECTS)
    if mapping.value is None:
        kept = _without_draft(target, mapping, defects)
    else:
        entry = registration(tree, mapping.value.architecture)
        draft_site, draft_class = _class_of(tree, mapping.value.architecture)
        facts, body, noticed = _unbuilt(draft_class)
        if draft_site is not None:
            recognised = quantisation(evaluator, checkpoint)
            sites = (target_site, draft_site)
            facts = _loading(tree, evaluator, checkpoint, capability, sites, recognised)
            body = implementation(tree, draft_site)
            noticed = noticing(tree, draft_site, recognised.value is not None)
        is_entered = entry.value is not None
        registered = Reading(
            entry.sentence if is_entered else None, entry.sentence, entry.places, entry.understood
        )
        kept = KeptHead(target, _named(mapping), draft_class, registered, body, facts, noticed, defects)
    reader.recorded.replay(tree)
    return kept


def _class_of(tree: SourceTree, architecture: str) -> tuple[ClassSite | None, Reading[str]]:
    """The class that is registered for an architecture, and the same as a claim."""
    if not architecture:
        return None, not_understood("looked for architectures in config.json; it names none")
    entry = registration(tree, architecture)
    if entry.value is None:
        return None, Reading(None, entry.sentence, entry.places, entry.understood)
    site = locate_class(tree, entry.value.module, entry.value.class_name)
    if site.value is None:
        return None, Reading(None, site.sentence, (*site.places, *entry.places), site.understood)
    sentence = f"class {site.value.name} of {entry.value.module} is registered for {architecture}"
    return site.value, found(site.value.name, sentence, site.value.place, *entry.places)


def _named(mapping: Reading[DraftMapping]) -> Reading[str]:
    value = mapping.value
    if value is None:
        return Reading(None, mapping.sentence, mapping.places, mapping.understood)
    return found(value.architecture, f"becomes {mapping.sentence}", *mapping.places)


def _without_draft(
    target: Reading[str], mapping: Reading[DraftMapping], defects: tuple[Reading[bool], ...]
) -> KeptHead:
    """Without a draft architecture nothing further can be asked."""
    sentence, places = "there is no draft architecture to look for", mapping.places
    return KeptHead(
        target=target,
        draft_architecture=_named(mapping),
        draft_class=not_understood(sentence, *places),
        registration=not_understood(sentence, *places),
        implementation=not_understood(sentence, *places),
        loading=_open(sentence, *places),
        noticing=not_understood(sentence, *places),
        defects=defects,
    )


def _unbuilt(draft_class: Reading[str]) -> tuple[LoadingReadings, Reading[str], Reading[Noticing]]:
    sentence = f"there is no draft class to look at: {draft_class.sentence}"
    places = draft_class.places
    return _open(sentence, *places), not_understood(sentence, *places), not_understood(sentence, *places)


def _loading(
    tree: SourceTree,
    evaluator: Evaluator,
    checkpoint: ServedCheckpoint,
    capability: tuple[int, int],
    sites: tuple[ClassSite | None, ClassSite],
    recognised: Reading[Quantisation],
) -> LoadingReadings:
    """Builds the draft model and loads the checkpoint's head into it."""
    few = representatives(checkpoint)
    target, draft = sites
    if not recognised.understood:
        return _open(recognised.sentence, *recognised.places)
    refusal = recognised.value.refusal if recognised.value is not None else None
    if refusal is not None:
        return _refused(few, DraftRun((), refusal, {}, (), (), {}), draft)
    reduced = draft_mapping(tree, evaluator, replace(checkpoint, config=few.config))
    if reduced.value is None:
        return _open(reduced.sentence, *reduced.places)
    subject = DraftSubject(draft, target, few.config, reduced.value.config, recognised.value, capability)
    builder = DraftBuilder(evaluator, subject)
    run = builder.load(few.tensors)
    unclear = _unclear(run, draft)
    if unclear is not None:
        return _open(unclear[0], unclear[1], draft.place)
    singly = builder.load_singly(few.tensors) if run.error is not None else None
    if singly is not None and not singly.parameters:
        return _refused(few, run, draft)
    loaded = Loaded(few, run, singly, _loader_line(tree, draft), _sharing(tree))
    return _read(loaded, draft)


def _read(loaded: Loaded, draft: ClassSite) -> LoadingReadings:
    landings = tensor_landings(loaded)
    unwritten = unwritten_parameters(loaded)
    places = tuple(dict.fromkeys(place for landing in landings for place in landing.places[:1]))[:4]
    precision = head_precision(loaded.final)
    fates = f"{sum(landing.count for landing in landings)} tensors were followed through vLLM's own loader"
    if loaded.run.error is not None and is_about_missing(loaded):
        fates = f"{fates}, which ends with {loaded.run.error}"
    left = f"{len(unwritten)} parameters stay unwritten" if unwritten else "every parameter is written"
    return LoadingReadings(
        found(precision, f"built by vLLM's own constructors: {precision}", draft.place),
        found(landings, fates, *places, loaded.loader),
        found(unwritten, left, *(parameter.place for parameter in unwritten[:4]), loaded.loader),
    )


def _refused(few: Representatives, run: DraftRun, draft: ClassSite) -> LoadingReadings:
    """The start ends while the draft model is built."""
    error = run.error
    if error is None:
        return _open("the draft model was not built", draft.place)
    sentence = f"the start ends with {error}"
    landings = refused_landings(few, error, sentence, draft.place)
    return LoadingReadings(
        not_understood(sentence, error.place, draft.place),
        found(landings, sentence, error.place, draft.place),
        not_understood(sentence, error.place, draft.place),
    )


def _unclear(run: DraftRun, draft: ClassSite) -> tuple[str, Place] | None:
    """Why nothing follows from a run, if so."""
    looked = f"built {draft.name} and loaded the head with vLLM's own rules"
    if run.problem:
        return f"{looked}; {run.problem}", run.problem_place or draft.place
    for condition in run.conditions:
        if condition.place.file == draft.file:
            return f"{looked}; it depends on {condition.text}", condition.place
    error = run.error
    if error is None:
        return None
    if _OURS.match(str(error)) and not _PARAMETER.match(str(error)):
        return f"{looked}; ended with {error}", error.place
    if any(part in error.place.file for part in _KERNELS):
        return f"{looked}; no kernel was found: {error}", error.place
    return None


def _open(sentence: str, *places: Place) -> LoadingReadings:
    return LoadingReadings(
        not_understood(sentence, *places),
        not_understood(sentence, *places),
        not_understood(sentence, *places),
    )


def _loader_line(tree: SourceTree, draft: ClassSite) -> Place:
    method = find_method(tree, lineage(tree, draft), "load_weights")
    return method.place if method is not None else draft.place


def _sharing(tree: SourceTree) -> Place | None:
    """Where the target's embedding is put in the place of the draft's."""
    for file in _DRAFTERS:
        if tree.has(file):
            for number, line in enumerate(tree.text(file).splitlines(), 1):
                if _SHARING.search(line):
                    return Place(file, number)
    return None
