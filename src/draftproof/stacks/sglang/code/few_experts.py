"""A few experts that stand for all: experts differ in nothing but their number.

Families that count `n_routed_experts` keep their number in the config, since SGLang's rules ask for it
(shared experts are joined to the routed ones for 256 of them, and not for 16); only the tensors of the others
are left out. The other families are built with as many experts as are loaded: their rules go over all experts
for each tensor, and all of them come out the same way.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from draftproof.stacks.served_checkpoint import ServedCheckpoint, StoredTensor

_EXPERT = re.compile(r"(\.experts\.)(\d+)\.")
_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "mtp_num_experts")
_COUNTED_FREELY = ("num_experts",)
_KEPT = 3
_PER_EXPERT = (".gate.weight", ".experts.gate_up_proj", ".experts.down_proj")


@dataclass(frozen=True)
class FewExperts:
    """The reduced head.

    Attributes:
        config: content of config.json; with as many experts as are loaded, where no rule asks for the number.
        tensors: those of three experts, and all that belong to none.
        pattern_of: tensor -> its name with "{e}" for the expert's number.
        counts: pattern -> how many tensors of the checkpoint it stands for.
        missing: patterns of which some expert has no tensor -> the first such expert.
        experts: how many are built; 0 for a dense head or fused tensors.
        loaded_experts: how many of them have their tensors here.
    """

    config: Mapping[str, Any]
    tensors: tuple[StoredTensor, ...]
    pattern_of: Mapping[str, str]
    counts: Mapping[str, int]
    missing: Mapping[str, int]
    experts: int
    loaded_experts: int


def few_experts(checkpoint: ServedCheckpoint) -> FewExperts:
    """The head with the tensors of three experts."""
    present: dict[str, set[int]] = {}
    pattern_of: dict[str, str] = {}
    counts: dict[str, int] = {}
    for name in checkpoint.head:
        match = _EXPERT.search(name)
        pattern = _EXPERT.sub(r"\1{e}.", name, count=1)
        pattern_of[name] = pattern
        counts[pattern] = counts.get(pattern, 0) + 1
        if match is not None:
            present.setdefault(pattern, set()).add(int(match[2]))
    count = _expert_count(checkpoint.config)
    missing = {
        pattern: next(number for number in range(count) if number not in numbers)
        for pattern, numbers in present.items()
        if not numbers >= set(range(count))
    }
    config = _with_fewer(checkpoint.config, count)
    built = _expert_count(config)
    kept = set(range(built)) if built < count else {0, 1, count - 1}
    tensors = tuple(
        _fitted(tensor, count, built) for name, tensor in checkpoint.head.items() if _is_kept(name, kept)
    )
    names = {tensor.name for tensor in tensors}
    return FewExperts(
        config,
        tensors,
        {name: pattern for name, pattern in pattern_of.items() if name in names},
        counts,
        missing,
        built if present else 0,
        len({number for number in kept if 0 <= number < built}),
    )


def _with_fewer(config: Mapping[str, Any], count: int) -> Mapping[str, Any]:
    """The config with three experts, where it counts them in a field that no rule asks for."""
    if count <= _KEPT:
        return config
    changed = copy.deepcopy(dict(config))
    nested = changed.get("text_config")
    for holder in (nested, changed) if isinstance(nested, dict) else (changed,):
        for field in _COUNTED_FREELY:
            if holder.get(field) == count:
                holder[field] = _KEPT
                return changed
    return config


def _fitted(tensor: StoredTensor, count: int, built: int) -> StoredTensor:
    """A router or fused experts with as many experts as are built."""
    if built < count and tensor.name.endswith(_PER_EXPERT) and tensor.shape and tensor.shape[0] == count:
        return replace(tensor, shape=(built, *tensor.shape[1:]))
    return tensor


def _is_kept(name: str, kept: set[int]) -> bool:
    match = _EXPERT.search(name)
    return match is None or int(match[2]) in kept


def _expert_count(config: Mapping[str, Any]) -> int:
    """The number of routed experts; 0 when the config does not say."""
    nested = config.get("text_config")
    for holder in (nested, config) if isinstance(nested, Mapping) else (config,):
        for field in _COUNTS:
            value = holder.get(field)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 0
