"""A few experts that stand for all: experts differ in nothing but their number.

The config keeps its number of experts, since SGLang's rules ask for it (shared experts are joined to the
routed ones for 256 of them, and not for 16); only the tensors of the others are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.stacks.served_checkpoint import ServedCheckpoint, StoredTensor

_EXPERT = re.compile(r"(\.experts\.)(\d+)\.")
_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "mtp_num_experts")


@dataclass(frozen=True)
class FewExperts:
    """The reduced head.

    Attributes:
        config: content of config.json.
        tensors: those of the first two and of the last expert, and all that belong to none.
        pattern_of: tensor -> its name with "{e}" for the expert's number.
        counts: pattern -> how many tensors of the checkpoint it stands for.
        missing: patterns of which some expert has no tensor -> the first such expert.
        experts: how many there are, by the config; 0 for a dense head or fused tensors.
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
    count = _expert_count(checkpoint.config) if present else 0
    kept = {0, 1, count - 1}
    tensors = tuple(tensor for name, tensor in checkpoint.head.items() if _is_kept(name, kept))
    missing = {
        pattern: next(number for number in range(count) if number not in numbers)
        for pattern, numbers in present.items()
        if not numbers >= set(range(count))
    }
    names = {tensor.name for tensor in tensors}
    return FewExperts(
        checkpoint.config,
        tensors,
        {name: pattern for name, pattern in pattern_of.items() if name in names},
        counts,
        missing,
        count,
        len({number for number in kept if 0 <= number < count}),
    )


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
