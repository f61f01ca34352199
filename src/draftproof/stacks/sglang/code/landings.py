"""From a head that was loaded to the fate of each tensor and the parameters that stayed unwritten."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from draftproof.stacks.built_parameter import BuiltParameter
from draftproof.stacks.built_precision import built_precision, stored_precisions
from draftproof.stacks.classes import MethodSource
from draftproof.stacks.code_facts import Fate, TensorLanding, UnwrittenParameter
from draftproof.stacks.place import Place
from draftproof.stacks.served_checkpoint import ServedCheckpoint
from draftproof.stacks.sglang.code.few_experts import FewExperts
from draftproof.stacks.sglang.code.head_loading import Failure, LoadedHead

TARGETS_EMBEDDING, TARGETS_OUTPUT_HEAD = "the target's embedding", "the target's output head"
_SCALES = ("scale", "scale_2", "scale_inv", "zero_point", "k_scale", "v_scale")


@dataclass(frozen=True)
class LoadedCheckpoint:
    """What the fates are read from.

    Attributes:
        checkpoint: the whole head.
        few: the head with a few experts, as it was loaded.
        loaded: what became of it.
        loader: the method that loads.
        head: line of the head's class.
    """

    checkpoint: ServedCheckpoint
    few: FewExperts
    loaded: LoadedHead
    loader: MethodSource
    head: Place


def tensor_landings(subject: LoadedCheckpoint) -> tuple[TensorLanding, ...]:
    """The fate of every tensor, experts together."""
    names = {parameter.name: parameter for parameter in subject.loaded.parameters}
    holders: dict[str, BuiltParameter] = {}
    for parameter in subject.loaded.parameters:
        for name in parameter.tensors:
            holders.setdefault(name, parameter)
    stored = stored_precisions(subject.few.tensors)
    by_pattern: dict[str, list[TensorLanding]] = {}
    for tensor in subject.few.tensors:
        pattern = subject.few.pattern_of[tensor.name]
        count = subject.few.counts[pattern]
        holder = holders.get(tensor.name)
        if holder is None:
            landing = _lost(subject, tensor.name, pattern, count, stored[tensor.name])
        else:
            landing = _landed(subject, holder, names, pattern, count, stored[tensor.name])
        by_pattern.setdefault(pattern, []).append(landing)
    return tuple(_worst(landings) for landings in by_pattern.values())


def unwritten_parameters(subject: LoadedCheckpoint) -> tuple[UnwrittenParameter, ...]:
    """Parameters that no tensor lands in, or only a part of what belongs there."""
    return tuple(_unwritten(subject))


def _unwritten(subject: LoadedCheckpoint) -> Iterator[UnwrittenParameter]:
    for parameter in subject.loaded.parameters:
        if parameter.owner:
            continue
        # What was made to fill a gap has no name: zeros that a loader appends to a tensor that is too small.
        written = sum(count for name, count in parameter.writes if name)
        is_scale = parameter.name.endswith(_SCALES) or parameter.name.endswith("correction_bias")
        if written == 0 and parameter.is_filled and is_scale:
            # A scale that is made as one stays one: the precision has none on disk.
            continue
        wanted = _wanted(subject, parameter)
        if written < wanted:
            part = f" (part: {written:,} of {wanted:,} elements)" if written else ""
            yield UnwrittenParameter(parameter.name + part, subject.head)
    for pattern, expert in subject.few.missing.items():
        yield UnwrittenParameter(f"{pattern.replace('{e}', str(expert))} (no such tensor)", subject.head)


def _wanted(subject: LoadedCheckpoint, parameter: BuiltParameter) -> int:
    """Elements that the tensors which were loaded must fill: of experts, only some were."""
    experts, loaded = subject.few.experts, subject.few.loaded_experts
    if not experts or ".experts." not in parameter.name or not parameter.shape:
        return parameter.size
    built = parameter.shape[0]
    beyond = built - experts
    # Shared experts may stand behind the routed ones in the same parameter.
    return parameter.size // built * (loaded + beyond) if 0 <= beyond < experts else parameter.size


def _landed(
    subject: LoadedCheckpoint,
    holder: BuiltParameter,
    names: Mapping[str, BuiltParameter],
    pattern: str,
    count: int,
    stored: str,
) -> TensorLanding:
    shared = bool(holder.owner)
    return TensorLanding(
        tensor=pattern,
        count=count,
        fate=Fate.SHARED if shared else Fate.LANDS,
        parameter=holder.name,
        shard="",
        stored=stored,
        built="" if shared else built_precision(holder, names),
        places=(subject.loader.place,),
        sentence=f"replaced by {holder.owner}" if shared else f"lands in {holder.name}",
    )


def _lost(subject: LoadedCheckpoint, name: str, pattern: str, count: int, stored: str) -> TensorLanding:
    failure = subject.loaded.failures.get(name, Failure())
    loader = subject.loader.place
    owner = _taken_over(name, subject.loaded)
    if owner and not failure.error:
        sentence = f"is not read: {owner} takes its place"
        return TensorLanding(pattern, count, Fate.SHARED, "", "", stored, "", (loader,), sentence)
    places = tuple(place for place in (failure.place, *_skips(subject.loader)) if place is not None)
    if failure.is_ours:
        fate, sentence = Fate.NOT_UNDERSTOOD, f"could not be followed: {failure.error}"
    elif failure.error:
        fate, sentence = Fate.REFUSED, f"the start ends with {failure.error}"
    elif failure.log:
        fate, sentence = Fate.SKIPPED_WITH_LOG, f"it is skipped; the log says: {failure.log}"
    else:
        fate, sentence = Fate.SKIPPED_SILENTLY, "it is skipped without a word: no parameter has its name"
    return TensorLanding(pattern, count, fate, "", "", stored, "", (*places[:4], loader), sentence)


_SHARED_ROLES = {
    TARGETS_EMBEDDING: (".embed_tokens.weight",),
    TARGETS_OUTPUT_HEAD: (".shared_head.head.weight", "lm_head.weight"),
}


def _taken_over(name: str, loaded: LoadedHead) -> str:
    """What of the target stands where a head's own copy of it would; empty for other tensors."""
    owners = {parameter.owner for parameter in loaded.parameters}
    for owner, ends in _SHARED_ROLES.items():
        if owner in owners and name.endswith(ends):
            return owner
    return ""


def _skips(loader: MethodSource) -> Iterator[Place]:
    """Lines of the loader where a name ends in continue or break because no parameter has it."""
    for node in ast.walk(loader.node):
        if not isinstance(node, ast.If) or not isinstance(node.body[-1], ast.Continue | ast.Break):
            continue
        if any(isinstance(part, ast.NotIn) for part in ast.walk(node.test)):
            yield Place(loader.owner.file, node.lineno)


_ORDER = (
    Fate.REFUSED,
    Fate.SKIPPED_SILENTLY,
    Fate.SKIPPED_WITH_LOG,
    Fate.NOT_UNDERSTOOD,
    Fate.LEFT_OUT,
    Fate.SHARED,
    Fate.LANDS,
)


def _worst(landings: list[TensorLanding]) -> TensorLanding:
    return min(landings, key=lambda landing: _ORDER.index(landing.fate))
