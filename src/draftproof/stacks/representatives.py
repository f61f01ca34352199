"""A checkpoint with a few experts standing for all: experts differ in nothing but their number.

vLLM's loaders compare every tensor's name with the names of all experts. With 512 of them that is a million
comparisons that all come out the same way, so the model is built with as few experts as its config allows,
and each tensor of expert 0 stands for its fellows.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.stacks.served_checkpoint import ServedCheckpoint, StoredTensor

COUNT_FIELDS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "mtp_num_experts")
_GROUP_FIELDS = ("n_group", "num_expert_group")
_EXPERT = re.compile(r"(\.experts\.)(\d+)\.")
_FUSED = re.compile(r"\.experts\.(gate_up_proj|down_proj|w13|w2)[^.]*$")


@dataclass(frozen=True)
class Representatives:
    """The reduced checkpoint.

    Attributes:
        config: config.json with fewer experts.
        tensors: the head's tensors of those experts, and all that belong to none.
        pattern_of: representative's name -> name with "{e}" for the expert's number.
        counts: pattern -> how many tensors of the checkpoint it stands for.
        missing: patterns of which some expert has no tensor -> the first such expert.
    """

    config: Mapping[str, Any]
    tensors: tuple[StoredTensor, ...]
    pattern_of: Mapping[str, str]
    counts: Mapping[str, int]
    missing: Mapping[str, int]


def representatives(checkpoint: ServedCheckpoint) -> Representatives:
    """The checkpoint's head with as few experts as its config allows."""
    experts = _expert_count(checkpoint.config)
    kept = _kept_experts(checkpoint.config, experts)
    config = _with_experts(checkpoint.config, kept) if experts else checkpoint.config
    counts: dict[str, int] = {}
    present: dict[str, set[int]] = {}
    pattern_of: dict[str, str] = {}
    tensors = []
    for tensor in checkpoint.head.values():
        match = _EXPERT.search(tensor.name)
        pattern = _EXPERT.sub(r"\1{e}.", tensor.name)
        counts[pattern] = counts.get(pattern, 0) + 1
        if match is None:
            tensors.append(_reduced(tensor, experts, kept))
            pattern_of[tensor.name] = pattern
            continue
        number = int(match.group(2))
        present.setdefault(pattern, set()).add(number)
        if number < kept or not experts:
            tensors.append(tensor)
            pattern_of[tensor.name] = pattern
    missing = {
        pattern: _first_missing(numbers, experts)
        for pattern, numbers in present.items()
        if len(numbers) < experts
    }
    return Representatives(config, tuple(tensors), pattern_of, counts, missing)


def _expert_count(config: Mapping[str, Any]) -> int:
    """The number of routed experts; 0 for none."""
    for holder in _holders(config):
        for field in COUNT_FIELDS:
            value = holder.get(field)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 0


def _kept_experts(config: Mapping[str, Any], experts: int) -> int:
    """Two, or two for each group where experts are grouped."""
    groups = [
        holder[field]
        for holder in _holders(config)
        for field in _GROUP_FIELDS
        if isinstance(holder.get(field), int) and holder[field] > 0
    ]
    return min(experts, 2 * max(groups, default=1))


def _with_experts(config: Mapping[str, Any], kept: int) -> dict[str, Any]:
    changed = copy.deepcopy(dict(config))
    for holder in _holders(changed):
        for field in COUNT_FIELDS:
            if isinstance(holder.get(field), int) and holder[field] > kept:
                holder[field] = kept
    return changed


def _holders(config: Mapping[str, Any]) -> Iterable[Any]:
    """The config and its nested text config."""
    nested = config.get("text_config")
    return (config, nested) if isinstance(nested, Mapping) else (config,)


def _reduced(tensor: StoredTensor, experts: int, kept: int) -> StoredTensor:
    """Fused experts, and a router, with fewer experts; any other tensor as it is."""
    shape = tensor.shape
    is_router = tensor.name.endswith((".gate.weight", ".e_score_correction_bias", ".expert_bias"))
    if experts and shape and shape[0] == experts and (_FUSED.search(tensor.name) or is_router):
        return StoredTensor(tensor.name, (kept, *shape[1:]), tensor.dtype)
    return tensor


def _first_missing(numbers: set[int], experts: int) -> int:
    return next(number for number in range(experts) if number not in numbers)
