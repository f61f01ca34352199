"""Claims about which tensors are there: of the head, of the target, with the right shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from draftproof.architecture.spec import ExpertLayout, ModelSpec, MoeSpec
from draftproof.architecture.tensor_names import wrong_prefixes
from draftproof.architecture.tensor_plan import ModelPart, PlannedTensor, TensorGroup
from draftproof.checkpoint.header import TensorEntry
from draftproof.checkpoint.index import INDEX_FILE
from draftproof.evidence import EvidenceItem, Location, Note, Verdict, information, warning
from draftproof.evidence.quantities import count_text, listing
from draftproof.links.examined import Examined, place_of

_PLACES = 20
_SAME_BYTES = 65_536
_LAYOUT_WORDS = {
    ExpertLayout.NONE: "dense",
    ExpertLayout.FUSED: "experts fused",
    ExpertLayout.PER_EXPERT: "experts one by one",
    ExpertLayout.STACKED: "experts stacked",
}


def completeness_items(examined: Examined) -> Iterator[EvidenceItem]:
    """Head, target, output head, shapes."""
    if examined.spec.mtp is not None:
        yield _head_complete(examined)
    yield _target_complete(examined)
    yield _output_head(examined)
    if examined.checkpoint.inventory.tensors:
        yield _shapes(examined)


def layout_words(layout: ExpertLayout, spec: ModelSpec) -> str:
    """How the experts of a part lie on disk, in words; a part without tensors is taken as one by one."""
    moe = spec.mtp.layer.mlp if spec.mtp else spec.layers[-1].mlp
    if isinstance(moe, MoeSpec) and layout is ExpertLayout.NONE:
        layout = ExpertLayout.PER_EXPERT
    return _LAYOUT_WORDS[layout]


def _head_complete(examined: Examined) -> EvidenceItem:
    planned = examined.found.plan.of(ModelPart.MTP)
    missing = [tensor for tensor in examined.found.missing if tensor.part is ModelPart.MTP]
    present = len(planned) - len(missing)
    elsewhere = list(_elsewhere(examined, missing))
    extra = [entry for entry in examined.found.unexpected if _belongs_to_head(entry.name)]
    words = layout_words(examined.found.plan.layouts.mtp, examined.spec)
    observed = f"{present:,} of {count_text(len(planned), 'tensor')} ({words})"
    if missing and present:
        observed += f"; missing {listing([tensor.name for tensor in missing])}"
    if elsewhere:
        observed += f"; {elsewhere[0].text}"
    elif not present:
        observed += ": the config promises a head and the weights have none"
    return EvidenceItem(
        check="head-complete",
        claim="Every tensor of the MTP head is there.",
        verdict=Verdict.DISPROVED if missing else Verdict.PROVEN,
        expected=f"{count_text(len(planned), 'tensor')}",
        observed=observed,
        where=_where(examined, missing or planned),
        command=_names_command(examined, missing[0].name if missing and present else "mtp."),
        notes=(*elsewhere[1:], *_stripped_note(present), *_extra_notes("the head", extra)),
    )


def _elsewhere(examined: Examined, missing: Sequence[PlannedTensor]) -> Iterator[Note]:
    """Where missing tensors of the head lie instead."""
    names = {tensor.name for tensor in missing}
    if not names:
        return
    unread = [entry for entry in examined.checkpoint.inventory.unindexed if entry.name in names]
    if unread:
        files = sorted({entry.file for entry in unread})
        yield warning(
            f"{count_text(len(unread), 'tensor')} of it in {listing(files, 2)}, which no load reads: name "
            f"the tensors in {INDEX_FILE}",
            *(place_of(entry) for entry in unread[:_PLACES]),
        )
    for found in wrong_prefixes(examined.checkpoint.inventory.tensors):
        yield warning(
            f"{count_text(len(found.names), 'tensor')} of it under {found.prefix}mtp., where no engine looks"
            ": rename them to mtp.*",
            *(Location(tensor=name) for name in found.names[:_PLACES]),
        )


def _stripped_note(present: int) -> tuple[Note, ...]:
    if present:
        return ()
    return (
        information(
            "transformers drops mtp.* when it loads and saves a model, and keeps the config's promise: take "
            "the tensors from the original checkpoint"
        ),
    )


def _target_complete(examined: Examined) -> EvidenceItem:
    planned = [tensor for tensor in examined.found.plan.tensors if tensor.part is not ModelPart.MTP]
    planned = [tensor for tensor in planned if tensor.group is not TensorGroup.LM_HEAD]
    missing = [
        tensor
        for tensor in examined.found.missing
        if tensor.part is not ModelPart.MTP and tensor.group is not TensorGroup.LM_HEAD
    ]
    notes: list[Note] = []
    tower = examined.found.plan.of(ModelPart.VISION)
    if tower and sum(tensor.part is ModelPart.VISION for tensor in missing) == len(tower):
        missing = [tensor for tensor in missing if tensor.part is not ModelPart.VISION]
        planned = [tensor for tensor in planned if tensor.part is not ModelPart.VISION]
        text = f"the config has a vision tower and the weights have none of its {len(tower)} tensors"
        notes.append(
            warning(f"{text}: the checkpoint serves text only", Location("config.json", "vision_config"))
        )
    # Without a declared head, tensors of one are left over like any others.
    denied = examined.spec.mtp is None
    extra = [
        entry
        for entry in examined.found.unexpected
        if (denied or not _belongs_to_head(entry.name)) and not entry.name.startswith("lm_head.")
    ]
    words = _LAYOUT_WORDS[examined.found.plan.layouts.trunk]
    observed = (
        f"{len(planned) - len(missing):,} of {count_text(len(planned), 'tensor')} ({words}), without scales"
    )
    if missing:
        observed += f"; missing {listing([tensor.name for tensor in missing])}"
    return EvidenceItem(
        check="target-complete",
        claim="Every other tensor that the architecture requires is there.",
        verdict=Verdict.DISPROVED if missing else Verdict.PROVEN,
        expected=f"{count_text(len(planned), 'tensor')} and their scales",
        observed=observed,
        where=_where(examined, missing or planned),
        command=_names_command(examined, missing[0].name if missing else "norm.weight"),
        notes=(*notes, *_extra_notes("the target", extra)),
    )


def _extra_notes(part: str, extra: Sequence[TensorEntry]) -> Iterator[Note]:
    if extra:
        names = [entry.name for entry in extra]
        yield warning(
            f"{count_text(len(extra), 'tensor')} of {part} without a place in the model: {listing(names)}"
            ". A strict loader stops, others skip what they do not know",
            *(place_of(entry) for entry in extra[:_PLACES]),
        )


def _output_head(examined: Examined) -> EvidenceItem:
    """tie_word_embeddings against the presence of lm_head, which target and head share."""
    tied = examined.spec.tie_word_embeddings
    tensors = examined.checkpoint.inventory.tensors
    present = sorted(name for name in tensors if name.startswith("lm_head."))
    notes: tuple[Note, ...] = ()
    if tied and present:
        notes = (_untied_copy_note(examined, tensors[present[0]]),)
    broken = not tied and not present
    where = (
        Location("config.json", field="tie_word_embeddings"),
        *(place_of(tensors[n]) for n in present[:4]),
    )
    observed = (f"lm_head is there: {listing(present)}" if present else "there is no lm_head") + (
        ", the config says tied" if tied else ", the config says not tied"
    )
    return EvidenceItem(
        check="output-head",
        claim="The output head that target and MTP head share exists.",
        verdict=Verdict.DISPROVED if broken else Verdict.PROVEN,
        expected="lm_head.weight, or tie_word_embeddings true",
        observed=observed,
        where=where,
        command=examined.commands.field("config.json", "tie_word_embeddings"),
        notes=notes,
    )


def _untied_copy_note(examined: Examined, head: TensorEntry) -> Note:
    embedding = examined.checkpoint.inventory.tensors.get(f"{examined.spec.text_prefix}embed_tokens.weight")
    if embedding is not None and _begins_alike(examined, head, embedding):
        return information("lm_head is a copy of the embedding: tying changes nothing", place_of(head))
    return warning(
        "tie_word_embeddings is true and there is an lm_head that differs from the embedding: engines "
        "that tie ignore it",
        place_of(head),
    )


def _begins_alike(examined: Examined, one: TensorEntry, other: TensorEntry) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    length = min(one.nbytes, _SAME_BYTES)
    source = examined.checkpoint.source
    return source.read_range(one.file, one.start, length) == source.read_range(
        other.file, other.start, length
    )


def _shapes(examined: Examined) -> EvidenceItem:
    misfits = examined.found.misfits
    return EvidenceItem(
        check="shapes-right",
        claim="Every tensor has the shape that the config asks for.",
        verdict=Verdict.DISPROVED if misfits else Verdict.PROVEN,
        expected="the shapes that follow from the config's sizes",
        observed=listing([misfit.message for misfit in misfits], 3) or "all shapes agree",
        where=tuple(place_of(misfit.entry) for misfit in misfits[:_PLACES]) or (Location("config.json"),),
        command=examined.commands.header(misfits[0].entry.file, misfits[0].entry.name)
        if misfits
        else examined.commands.field("config.json", "hidden_size"),
    )


def _belongs_to_head(name: str) -> bool:
    return name.startswith("mtp.") or ".mtp." in name


def _where(examined: Examined, tensors: Sequence[PlannedTensor]) -> tuple[Location, ...]:
    """Where the first of these tensors lie, or where they are looked for."""
    index = examined.checkpoint.inventory.index
    places = []
    for tensor in tensors[:_PLACES]:
        entry = examined.checkpoint.inventory.tensors.get(tensor.name)
        stored = examined.found.modules.get(tensor.module)
        entry = entry or (stored.weight if stored else None)
        absent = Location(index.file if index else "", tensor=tensor.name)
        places.append(place_of(entry) if entry else absent)
    return tuple(places)


def _names_command(examined: Examined, part: str) -> str:
    """A command that shows whether names with this part are there."""
    inventory = examined.checkpoint.inventory
    if inventory.index is not None:
        return examined.commands.tensor_names(inventory.index.file, part)
    return examined.commands.header(inventory.files[0].name, part) if inventory.files else ""
