"""From a draft model that was built and loaded to the fate of each tensor and the unwritten parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from draftproof.stacks.built_parameter import BuiltParameter as PlainParameter
from draftproof.stacks.built_precision import built_precision, head_summary, stored_precisions
from draftproof.stacks.code_facts import Fate, TensorLanding, UnwrittenParameter
from draftproof.stacks.evaluation.outcomes import RaisedError
from draftproof.stacks.place import Place
from draftproof.stacks.representatives import Representatives
from draftproof.stacks.served_checkpoint import StoredTensor
from draftproof.stacks.vllm.code.draft_model import BuiltParameter, DraftRun

_SHARED = ("embed_tokens", "lm_head", "shared_head.head")
_SHARDS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "gate_proj": "0", "up_proj": "1"}
_EXPERT_SHARDS = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2", "gate_up_proj": "w1 and w3"}
_PLAIN = {"bfloat16": "BF16", "float16": "FP16", "float32": "FP32"}
_WORST_FIRST = (
    Fate.REFUSED,
    Fate.NOT_UNDERSTOOD,
    Fate.SKIPPED_SILENTLY,
    Fate.SKIPPED_WITH_LOG,
    Fate.LEFT_OUT,
    Fate.SHARED,
    Fate.LANDS,
)


@dataclass(frozen=True)
class Loaded:
    """What the fates are read from.

    Attributes:
        few: the head with a few experts, as it was loaded.
        run: all tensors loaded in one go.
        singly: the tensors loaded one by one, where the first way ended with an error; None otherwise.
        loader: line of the draft class's load_weights.
        sharing: where the target's embedding takes the place of the draft's; None when not found.
    """

    few: Representatives
    run: DraftRun
    singly: DraftRun | None
    loader: Place
    sharing: Place | None

    @property
    def final(self) -> DraftRun:
        """The run whose parameters count."""
        return self.run if self.singly is None else self.singly


def tensor_landings(loaded: Loaded) -> tuple[TensorLanding, ...]:
    """The fate of every tensor, experts together."""
    holders: dict[str, BuiltParameter] = {}
    for parameter in loaded.final.parameters:
        for name in parameter.writes:
            holders.setdefault(name, parameter)
    names = plain_parameters(loaded.final)
    stored = stored_precisions(loaded.few.tensors)
    by_pattern: dict[str, list[TensorLanding]] = {}
    for tensor in loaded.few.tensors:
        holder = holders.get(tensor.name)
        if holder is None:
            landing = _lost(loaded, tensor, stored[tensor.name])
        else:
            landing = _landed(loaded, holder, tensor, stored[tensor.name], names)
        by_pattern.setdefault(landing.tensor, []).append(landing)
    return tuple(min(group, key=lambda one: _WORST_FIRST.index(one.fate)) for group in by_pattern.values())


def refused_landings(
    few: Representatives, error: RaisedError, sentence: str, place: Place
) -> tuple[TensorLanding, ...]:
    """All tensors, none of which is read because the start ends before."""
    stored = stored_precisions(few.tensors)
    seen: dict[str, TensorLanding] = {}
    for tensor in few.tensors:
        pattern = few.pattern_of[tensor.name]
        seen.setdefault(
            pattern,
            TensorLanding(
                pattern,
                few.counts[pattern],
                Fate.REFUSED,
                "",
                "",
                stored[tensor.name],
                "",
                (error.place, place),
                sentence,
            ),
        )
    return tuple(seen.values())


def unwritten_parameters(loaded: Loaded) -> tuple[UnwrittenParameter, ...]:
    """Parameters of the head that stay as they were made, wholly or in part."""
    found = [
        UnwrittenParameter(_without_expert(parameter), parameter.place)
        for parameter in loaded.final.parameters
        if parameter.written < parameter.elements and not _is_shared(parameter.name) and _matters(parameter)
    ]
    return (*found, *_missing_experts(loaded))


def head_precision(run: DraftRun) -> str:
    """The precision of the head's parameters in words."""
    return head_summary(
        [parameter for name, parameter in plain_parameters(run).items() if not _is_shared(name)]
    )


def plain_parameters(run: DraftRun) -> dict[str, PlainParameter]:
    """The parameters by name, in the form in which precisions are read."""
    return {
        parameter.name: PlainParameter(
            parameter.name,
            parameter.shape,
            parameter.dtype,
            tuple((tensor, 0) for tensor in parameter.writes),
            parameter.is_filled,
            "",
        )
        for parameter in run.parameters
    }


def _landed(
    loaded: Loaded,
    holder: BuiltParameter,
    tensor: StoredTensor,
    stored: str,
    names: Mapping[str, PlainParameter],
) -> TensorLanding:
    pattern = loaded.few.pattern_of[tensor.name]
    is_shared = _is_shared(holder.name)
    shard = _shard(holder.name, tensor.name)
    places = (*loaded.final.places.get(tensor.name, ())[-1:], loaded.loader)
    sentence = f"lands in {holder.name}{f' ({shard})' if shard else ''}"
    if is_shared:
        places = (*((loaded.sharing,) if loaded.sharing else ()), *places)
        sentence = f"{sentence}, which the target's takes the place of"
    return TensorLanding(
        pattern,
        loaded.few.counts[pattern],
        Fate.SHARED if is_shared else Fate.LANDS,
        holder.name,
        shard,
        stored,
        _built(holder, names),
        places,
        sentence,
    )


def _built(holder: BuiltParameter, names: Mapping[str, PlainParameter]) -> str:
    """The precision of a parameter: of its module for weights and scales, its own for everything else."""
    leaf = holder.name.rpartition(".")[2]
    own = _PLAIN.get(holder.dtype)
    if own is not None and "weight" not in leaf and "scale" not in leaf:
        return own
    return built_precision(names[holder.name], names)


def _lost(loaded: Loaded, tensor: StoredTensor, stored: str) -> TensorLanding:
    pattern = loaded.few.pattern_of[tensor.name]
    fate, sentence, places = _reason(loaded, tensor)
    return TensorLanding(pattern, loaded.few.counts[pattern], fate, "", "", stored, "", places, sentence)


def _reason(loaded: Loaded, tensor: StoredTensor) -> tuple[Fate, str, tuple[Place, ...]]:
    """Why a tensor landed nowhere."""
    name, error = tensor.name, loaded.run.error
    own = loaded.singly.errors.get(name) if loaded.singly is not None else None
    if own is not None and error is not None and not is_about_missing(loaded):
        kind, message = own
        sentence = f"the start ends with {kind}: {message}"
        if not message:
            sentence = f"the start ends with {kind} where {list(tensor.shape)} {tensor.dtype} is copied"
        return Fate.REFUSED, sentence, (error.place, loaded.loader)
    for line in loaded.final.log:
        if line.level != "debug" and _names(line.text, name):
            return Fate.SKIPPED_WITH_LOG, f"is passed over with the message: {line.text}", (line.place,)
    return Fate.SKIPPED_SILENTLY, "no parameter has its name, and nothing is said", (loaded.loader,)


def is_about_missing(loaded: Loaded) -> bool:
    """The error is the same for every tensor alone: it is about those that are not there."""
    singly = loaded.singly
    if singly is None or loaded.run.error is None:
        return False
    return len(singly.errors) == len(loaded.few.tensors) and len(set(singly.errors.values())) == 1


def _names(text: str, name: str) -> bool:
    """Whether a message speaks of a tensor, whose name may have been changed by then."""
    return name in text or name.removeprefix("mtp.") in text


def _is_shared(name: str) -> bool:
    return any(part in name for part in _SHARED)


def _matters(parameter: BuiltParameter) -> bool:
    """Scales that are made with a value keep a sensible one without a tensor."""
    return not (parameter.is_filled and "scale" in parameter.name.rpartition(".")[2])


def _without_expert(parameter: BuiltParameter) -> str:
    partly = 0 < parameter.written < parameter.elements
    return f"{parameter.name} (in part)" if partly else parameter.name


def _missing_experts(loaded: Loaded) -> Iterator[UnwrittenParameter]:
    """Experts beyond those that were loaded which have no tensor."""
    for pattern, number in loaded.few.missing.items():
        yield UnwrittenParameter(pattern.replace("{e}", str(number)), loaded.loader)


def _shard(parameter: str, tensor: str) -> str:
    """The part of a fused parameter that a tensor fills."""
    projection = next((part for part in reversed(tensor.split(".")) if part.endswith("_proj")), "")
    if ".w13_" in parameter or ".w2_" in parameter:
        return _EXPERT_SHARDS.get(projection, "")
    is_fused = "qkv_proj" in parameter or "gate_up_proj" in parameter
    return _SHARDS.get(projection, "") if is_fused else ""
